//! The flag table: parser, help, man pages and completions all come from here.

mod examples;
mod generate;
mod images;
mod lab;
mod mount;
mod trace;

use clap::{Parser, Subcommand};

pub use examples::examples;
pub use generate::{CompletionsArgs, ManArgs};
pub use images::{CatArgs, CheckArgs, ExtractArgs, InfoArgs, LsArgs};
pub use lab::{
    LabCommand, LabHotplugArgs, LabKernelArgs, LabLaunchArgs, LabPressureArgs, LabReadArgs,
    LabSuiteArgs,
};
pub use mount::{HelperArgs, MountArgs, StatArgs, UmountArgs};
pub use trace::{By, TraceCommand, TraceLatencyArgs, TraceRecordArgs};

/// What `--version` prints.
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncodecs: LZ4, MicroLZMA, DEFLATE, Zstandard"
);

/// EROFS in user space, decompressed by one worker thread per CPU.
#[derive(Debug, Parser)]
#[command(
    name = "erofast",
    version,
    long_version = LONG_VERSION,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(
    after_help = "Exit status: 0 fine, 1 the thing asked for failed or was found faulty, \
    2 wrong use."
)]
pub struct Cli {
    /// What to do.
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
    /// Show the live counters of a mount
    Stat(StatArgs),
    /// Show an image: superblock, features, codecs, sizes, ratios
    Info(InfoArgs),
    /// List a directory of an image
    Ls(LsArgs),
    /// Write files of an image to the standard output
    Cat(CatArgs),
    /// Read everything in an image and list each fault once
    Check(CheckArgs),
    /// Write files of an image into a directory, or as a tar stream
    Extract(ExtractArgs),
    /// Record and read scheduler traces
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Measure scheduling latency with experiments
    #[command(subcommand)]
    Lab(LabCommand),
    /// Print a shell's completions for this command
    Completions(CompletionsArgs),
    /// Write the man pages into a directory
    Man(ManArgs),
}
