//! The flag table: parser, help, man pages and completions all come from here.

mod examples;
mod fuse_style;
#[cfg(feature = "tools")]
mod generate;
#[cfg(feature = "tools")]
mod images;
#[cfg(feature = "tools")]
mod lab;
mod mount;
mod parse;
#[cfg(feature = "tools")]
mod profile;
#[cfg(feature = "tools")]
mod tools;
#[cfg(feature = "tools")]
mod trace;
mod verity;

use clap::{Parser, Subcommand};

#[cfg(feature = "tools")]
pub use examples::examples;
pub use fuse_style::{FuseStyle, is_fuse_style, parse as parse_fuse_style};
#[cfg(feature = "tools")]
pub use generate::{CompletionsArgs, ManArgs};
#[cfg(feature = "tools")]
pub use images::{CatArgs, CheckArgs, ExtractArgs, InfoArgs, LsArgs};
#[cfg(feature = "tools")]
pub use lab::{
    LabCommand, LabDiffArgs, LabHotplugArgs, LabKernelArgs, LabLaunchArgs, LabPressureArgs,
    LabReadArgs, LabSuiteArgs,
};
pub use mount::{HelperArgs, MountArgs, StatArgs, UmountArgs, UpgradeArgs};
pub use parse::parse;
#[cfg(feature = "tools")]
pub use profile::{ProfileCommand, ProfileShowArgs, ProfileTrimArgs};
#[cfg(feature = "tools")]
pub use tools::ToolCommand;
#[cfg(feature = "tools")]
pub use trace::{By, TraceCommand, TraceLatencyArgs, TraceRecordArgs};

/// What `--version` prints.
const LONG_VERSION: &str = concat!(
    env!("EROFAST_VERSION"),
    "\ncodecs: LZ4, MicroLZMA, DEFLATE, Zstandard"
);

/// EROFS in user space, decompressed by one worker thread per CPU.
#[derive(Debug, Parser)]
#[command(
    name = "erofast",
    version = env!("EROFAST_VERSION"),
    long_version = LONG_VERSION,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit status: 0 success, 1 operation failed or image corrupt, 2 usage error."
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount an image
    Mount(MountArgs),
    /// Unmount an image
    Umount(UmountArgs),
    /// Have the program that is installed now serve a mount
    Upgrade(UpgradeArgs),
    /// Show the live counters of a mount
    Stat(StatArgs),
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tool(ToolCommand),
}
