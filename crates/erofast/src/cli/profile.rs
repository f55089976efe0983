//! Arguments of `profile`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use erofast_cli::examples_help;

use super::files::FileArgs;
use super::images::OpeningArgs;

/// The subcommands of `profile`.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// List the programs whose launches were learned
    List(ProfileListArgs),
    /// Show what a launch read, in which order
    Show(ProfileShowArgs),
    /// Leave out a part of a profile
    Trim(ProfileTrimArgs),
    /// Remove programs from a profile, or all of it
    Remove(ProfileRemoveArgs),
    /// Write what was learned of an image here, to travel with it
    Export(ProfileExportArgs),
    /// Join profiles that travel with images
    Merge(ProfileMergeArgs),
    /// Run a command from an image and write what it reads, to travel with the image
    ///
    /// The image is mounted in a mount namespace of the command, without root where user namespaces
    /// are allowed. The exit status is that of the command.
    Record(ProfileRecordArgs),
}

/// Arguments of `profile export`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast profile export"))]
pub struct ProfileExportArgs {
    /// Image that was launched from, or file that `profile list` names
    #[arg(value_name = "IMAGE|FILE")]
    pub profile: PathBuf,
    /// Programs of the image, as `profile list` names them; without any all of them
    pub programs: Vec<String>,
    /// File to write (default: standard output)
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub opening: OpeningArgs,
}

/// Arguments of `profile merge`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast profile merge"))]
pub struct ProfileMergeArgs {
    /// Profiles; a program that is in several reads all that they say
    #[arg(value_name = "FILE", required = true)]
    pub profiles: Vec<PathBuf>,
    /// File to write (default: standard output)
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `profile record`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast profile record"))]
pub struct ProfileRecordArgs {
    /// Image file, block device, or URL (http, https, oci)
    pub image: PathBuf,
    /// Run the command so often, each time from a new mount, and write all that it reads
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Make the mount the root directory of the command
    #[arg(long)]
    pub root: bool,
    /// Options of the mount, as `erofast mount -o` has them
    #[arg(short = 'O', long = "options", value_name = "OPTIONS")]
    pub options: Vec<OsString>,
    #[command(flatten)]
    pub files: FileArgs,
    /// File to write (default: IMAGE.launches; - for the standard output)
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Command to run, and its arguments; {} stands for the mount point
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Arguments of `profile remove`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast profile remove"))]
pub struct ProfileRemoveArgs {
    /// File that `profile list` names, or the image
    #[arg(value_name = "FILE|IMAGE")]
    pub profile: PathBuf,
    /// Programs of the image, as `profile list` names them; without any all of them
    pub programs: Vec<String>,
    #[command(flatten)]
    pub opening: OpeningArgs,
}

/// Arguments of `profile list`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast profile list"))]
pub struct ProfileListArgs {
    /// Images (files, block devices or URLs) whose launches are listed, or files that `profile
    /// list` names; without any those of all images
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
#[command(after_long_help = examples_help("erofast profile show"))]
pub struct ProfileShowArgs {
    /// Launch profile, or the image that it was learned of
    #[arg(value_name = "FILE|IMAGE")]
    pub profile: PathBuf,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "list")]
    pub json: bool,
    /// Print the paths of the files alone, in the order of their first page
    #[arg(long)]
    pub list: bool,
    /// With --list: end each path with a zero byte, not a newline
    #[arg(short = '0', long = "null", requires = "list")]
    pub null: bool,
    #[command(flatten)]
    pub opening: OpeningArgs,
}

/// Arguments of `profile trim`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast profile trim"))]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true))]
pub struct ProfileTrimArgs {
    /// Launch profile, or the image that it was learned of; later launches add nothing beyond the
    /// limits, until it is removed or trimmed again
    #[arg(value_name = "FILE|IMAGE")]
    pub profile: PathBuf,
    /// Keep pages first read within this many milliseconds
    #[arg(long, value_name = "MS", group = "limit")]
    pub until: Option<u32>,
    /// Keep at most this many MiB of pages, the first ones
    #[arg(long, value_name = "MIB", group = "limit")]
    pub size: Option<u32>,
    /// File to write; without it the profile is replaced
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub opening: OpeningArgs,
}
