//! Arguments of `cache`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use erofast_cli::examples_help;

use super::flags::{RemoteArgs, VerityArgs};

/// The subcommands of `cache`.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List the images that were fetched from URLs, the one used last at the end
    List(CacheListArgs),
    /// Remove images that are not in use, those not used for longest first
    Prune(CachePruneArgs),
    /// Fetch all of an image ahead of time
    Fetch(Box<CacheFetchArgs>),
}

/// Arguments of `cache list`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast cache list"))]
pub struct CacheListArgs {
    /// The cache [default: erofast in XDG_CACHE_HOME, or else in /var/cache (root) or ~/.cache]
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `cache prune`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast cache prune"))]
pub struct CachePruneArgs {
    /// The cache [default: erofast in XDG_CACHE_HOME, or else in /var/cache (root) or ~/.cache]
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Keep so many bytes; K, M and G are understood; 0 removes all that is not in use
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub cache_size: OsString,
}

/// Arguments of `cache fetch`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast cache fetch"))]
pub struct CacheFetchArgs {
    /// URL of the image (http, https, oci)
    pub url: PathBuf,
    #[command(flatten)]
    pub verity: VerityArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}
