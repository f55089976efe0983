//! The commands that do not concern mounts, one file or folder each, and what they share.

mod batch;
mod cache;
mod cat;
mod check;
pub mod erofs_utils;
mod extract;
mod generate;
mod glob;
mod info;
mod listing;
mod ls;
mod measure;
mod name;
mod parts;
mod profile;
mod text;
mod tree;

use erofast_cli::Outcome;

use crate::cli::tools::ToolCommand;
use crate::cli::tools::cache::CacheCommand;
use crate::cli::tools::profile::ProfileCommand;

/// Runs one of the commands.
pub fn run(command: ToolCommand) -> anyhow::Result<Outcome> {
    match command {
        ToolCommand::Info(args) => info::run(&args),
        ToolCommand::Ls(args) => ls::run(&args),
        ToolCommand::Cat(args) => cat::run(&args),
        ToolCommand::Check(args) => check::run(&args),
        ToolCommand::Extract(args) => extract::run(&args),
        ToolCommand::Profile(ProfileCommand::Remove(args)) => profile::remove(&args),
        ToolCommand::Profile(ProfileCommand::List(args)) => profile::list(&args),
        ToolCommand::Profile(ProfileCommand::Show(args)) => profile::show(&args),
        ToolCommand::Profile(ProfileCommand::Trim(args)) => profile::trim(&args),
        ToolCommand::Profile(ProfileCommand::Export(args)) => profile::export(&args),
        ToolCommand::Profile(ProfileCommand::Merge(args)) => profile::merge(&args),
        ToolCommand::Profile(ProfileCommand::Record(args)) => profile::record(&args),
        ToolCommand::Cache(CacheCommand::List(args)) => cache::list(&args),
        ToolCommand::Cache(CacheCommand::Prune(args)) => cache::prune(&args),
        ToolCommand::Cache(CacheCommand::Fetch(args)) => cache::fetch(&args),
        ToolCommand::Measure(_) => measure::run(),
        ToolCommand::Completions(args) => generate::completions(&args),
        ToolCommand::Complete(args) => generate::complete(&args),
        ToolCommand::Man(args) => generate::man(&args),
    }
}
