//! The flag table: parser, help, man pages and completions all come from here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use erofs_engine::{EngineOptions, Offset, WorkersMode};

/// EROFS in user space, decompressed by one worker thread per CPU.
#[derive(Debug, Parser)]
#[command(
    name = "erofast",
    version,
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
    /// Show an image: superblock, features, codecs, sizes, ratios
    Info(InfoArgs),
    /// List a directory of an image
    Ls(LsArgs),
    /// Write files of an image to the standard output
    Cat(CatArgs),
    /// Read everything in an image and list each fault once
    Check(CheckArgs),
    /// Print a shell's completions for this command
    Completions(CompletionsArgs),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(ManArgs),
}

/// Where an image is.
#[derive(Args, Clone, Debug)]
pub struct ImageArgs {
    /// Image file or block device
    pub image: PathBuf,
    /// Where the image starts in its file: a number of bytes, or auto to look for it
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_offset)]
    pub offset: Offset,
    /// Extra device of the image, in the order of its device table (repeatable)
    #[arg(long = "device", value_name = "PATH")]
    pub devices: Vec<PathBuf>,
}

fn parse_offset(text: &str) -> Result<Offset, String> {
    text.parse()
}

impl ImageArgs {
    /// Options for reading with these workers.
    pub fn options(&self, workers: WorkersMode) -> EngineOptions {
        EngineOptions {
            workers,
            offset: self.offset,
            devices: self.devices.clone(),
            ..EngineOptions::default()
        }
    }
}

/// Arguments of `info`.
#[derive(Args, Debug)]
pub struct InfoArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ls`.
#[derive(Args, Debug)]
pub struct LsArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Directory or file inside of the image
    #[arg(default_value = "/")]
    pub path: String,
    /// Long listing: type and mode, links, owner, group, size, time, name
    #[arg(short = 'l')]
    pub long: bool,
    /// List subdirectories too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Print JSON, one object per entry
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `cat`.
#[derive(Args, Debug)]
pub struct CatArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Files inside of the image
    #[arg(required = true)]
    pub paths: Vec<String>,
}

/// Arguments of `check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Threads that read (default: one for each CPU)
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    pub shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Where to write the pages
    pub directory: PathBuf,
}
