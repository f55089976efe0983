//! Arguments of `profile`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::images::OpeningArgs;
use crate::cli::flags::FileArgs;

/// The subcommands of `profile`.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// List the programs whose launches were learned
    List(ProfileListArgs),
    /// Show what a launch read, in order
    Show(ProfileShowArgs),
    /// Shorten a profile
    Trim(ProfileTrimArgs),
    /// Remove programs from a profile, or a whole profile
    Remove(ProfileRemoveArgs),
    /// Write what was learned here to a file that travels with the image
    Export(ProfileExportArgs),
    /// Merge profiles that travel with images
    Merge(ProfileMergeArgs),
    /// Run a command from an image, and record what it reads in a profile that travels with the
    /// image
    ///
    /// The image is mounted in a private mount namespace, without root if user namespaces
    /// are allowed. The exit status is that of the command.
    Record(ProfileRecordArgs),
}

/// Arguments of `profile export`.
#[derive(Args, Debug)]
pub struct ProfileExportArgs {
    /// Image, or a file that `profile list` names
    #[arg(value_name = "IMAGE|FILE")]
    pub profile: PathBuf,
    /// Programs, as `profile list` names them (default: all)
    pub programs: Vec<String>,
    /// File to write (default: standard output)
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub opening: OpeningArgs,
}

/// Arguments of `profile merge`.
#[derive(Args, Debug)]
pub struct ProfileMergeArgs {
    /// Profiles; a program that is in several of them gets the union of their reads
    #[arg(value_name = "FILE", required = true)]
    pub profiles: Vec<PathBuf>,
    /// File to write (default: standard output)
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `profile record`.
#[derive(Args, Debug)]
pub struct ProfileRecordArgs {
    /// Image file, block device, or URL (http, https, oci)
    pub image: PathBuf,
    /// Number of runs, each from a new mount; the reads of all runs are recorded
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Make the mount the root directory of the command
    #[arg(long)]
    pub root: bool,
    /// Mount options, as for `erofast mount -o`
    #[arg(short = 'O', long = "options", value_name = "OPTIONS")]
    pub options: Vec<OsString>,
    #[command(flatten)]
    pub files: FileArgs,
    /// File to write (default: IMAGE.launches; - for standard output)
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Command to run, and its arguments; {} stands for the mount point
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Arguments of `profile remove`.
#[derive(Args, Debug)]
pub struct ProfileRemoveArgs {
    /// Image, or a file that `profile list` names
    #[arg(value_name = "FILE|IMAGE")]
    pub profile: PathBuf,
    /// Programs, as `profile list` names them (default: all)
    pub programs: Vec<String>,
    #[command(flatten)]
    pub opening: OpeningArgs,
}

/// Arguments of `profile list`.
#[derive(Args, Debug)]
pub struct ProfileListArgs {
    /// Images (files, block devices or URLs) whose launches are listed, or files that `profile
    /// list` names (default: all images)
    #[arg(value_name = "FILE|IMAGE")]
    pub images: Vec<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub opening: OpeningArgs,
}

/// Arguments of `profile show`.
#[derive(Args, Debug)]
pub struct ProfileShowArgs {
    /// Launch profile, or the image it was learned from
    #[arg(value_name = "FILE|IMAGE")]
    pub profile: PathBuf,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "list")]
    pub json: bool,
    /// Print only the paths of the files, in the order in which they were first read
    #[arg(long)]
    pub list: bool,
    /// With --list: end each path with a NUL byte instead of a newline
    #[arg(short = '0', long = "null", requires = "list")]
    pub null: bool,
    #[command(flatten)]
    pub opening: OpeningArgs,
}

/// Arguments of `profile trim`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true))]
pub struct ProfileTrimArgs {
    /// Launch profile, or the image it was learned from; later launches add nothing beyond the
    /// limits until the profile is removed or trimmed again
    #[arg(value_name = "FILE|IMAGE")]
    pub profile: PathBuf,
    /// Keep only pages first read within this many milliseconds
    #[arg(long, value_name = "MS", group = "limit")]
    pub until: Option<u32>,
    /// Keep only the first pages, at most this many MiB
    #[arg(long, value_name = "MIB", group = "limit")]
    pub size: Option<u32>,
    /// File to write (default: replace the profile)
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub opening: OpeningArgs,
}
