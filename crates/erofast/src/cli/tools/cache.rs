//! Arguments of `cache`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::flags::{RemoteArgs, VerityArgs};

/// The subcommands of `cache`.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List cached images, the most recently used last
    List(CacheListArgs),
    /// Remove images that are not in use, the least recently used first
    Prune(CachePruneArgs),
    /// Fetch a whole image ahead of time
    Fetch(Box<CacheFetchArgs>),
}

/// Arguments of `cache list`.
#[derive(Args, Debug)]
pub struct CacheListArgs {
    /// Cache directory [default: erofast in XDG_CACHE_HOME, or else in /var/cache (root) or
    /// ~/.cache]
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Cache that root keeps for all users [default: /var/cache/erofast-shared]
    #[arg(long, value_name = "DIR")]
    pub cache_shared: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `cache prune`.
#[derive(Args, Debug)]
pub struct CachePruneArgs {
    /// Cache directory [default: erofast in XDG_CACHE_HOME, or else in /var/cache (root) or
    /// ~/.cache]
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Prune the cache that root keeps for all users, the images fetched longest ago first
    #[arg(long, conflicts_with = "cache_dir")]
    pub shared: bool,
    /// Directory of the shared cache [default: /var/cache/erofast-shared]
    #[arg(long, value_name = "DIR", requires = "shared")]
    pub cache_shared: Option<PathBuf>,
    /// Keep at most this many bytes (suffixes K, M, G); 0 removes everything not in use
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub cache_size: OsString,
}

/// Arguments of `cache fetch`.
#[derive(Args, Debug)]
pub struct CacheFetchArgs {
    /// URL of the image (http, https, oci)
    pub url: PathBuf,
    /// Keep the image for all users of the machine (root only)
    #[arg(long)]
    pub share: bool,
    #[command(flatten)]
    pub verity: VerityArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}
