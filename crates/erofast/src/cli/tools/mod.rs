//! The subcommands that do not concern mounts.

pub mod cache;
pub mod erofs_utils;
pub mod generate;
pub mod images;
pub mod profile;

use clap::Subcommand;
use erofast_cli::MeasureCommand;

use self::cache::CacheCommand;
use self::generate::{CompleteArgs, CompletionsArgs, ManArgs};
use self::images::{CatArgs, CheckArgs, ExtractArgs, InfoArgs, LsArgs};
use self::profile::ProfileCommand;

/// Commands that read images, manage profiles and the cache, measure, and generate documentation.
#[derive(Debug, Subcommand)]
pub enum ToolCommand {
    /// Show an image: superblock, features, codecs, sizes, ratios
    Info(InfoArgs),
    /// List a directory of an image
    Ls(LsArgs),
    /// Write files of an image to standard output
    Cat(CatArgs),
    /// Read everything in an image and list each fault once
    Check(CheckArgs),
    /// Extract an image into a directory, or as a tar stream
    Extract(ExtractArgs),
    /// Record, export, merge, show, trim and remove launch profiles
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// List, remove and fetch images at URLs
    #[command(subcommand)]
    Cache(CacheCommand),
    #[command(flatten)]
    Measure(MeasureCommand),
    /// Print a shell's completions for this command
    Completions(CompletionsArgs),
    /// Print what may follow on a command line, for the scripts of the shells
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Write the man pages into a directory
    Man(ManArgs),
}
