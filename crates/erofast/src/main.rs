//! The `erofast` command.
#![forbid(unsafe_code)]
// They panic when the stream cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[cfg(feature = "tools")]
mod bar;
#[cfg(feature = "tools")]
mod batch;
mod cli;
mod commands;
#[cfg(feature = "tools")]
mod glob;
#[cfg(feature = "tools")]
mod listing;
#[cfg(feature = "tools")]
mod name;
#[cfg_attr(
    not(feature = "tools"),
    allow(dead_code, reason = "the tools find faults")
)]
mod outcome;
#[cfg(feature = "tools")]
mod parts;
#[cfg(feature = "tools")]
mod text;
#[cfg(feature = "tools")]
mod tree;
mod units;

use std::path::Path;
use std::process::ExitCode;

use crate::cli::{Cli, Command, HelperArgs};
use crate::outcome::{Outcome, USAGE_STATUS, Usage, is_broken_pipe, one_line};

#[global_allocator]
static ALLOCATOR: sys::allocator::Allocator = sys::allocator::Allocator;

fn main() -> ExitCode {
    if let Some(status) = erofs_fuse::run_if_daemon() {
        return status;
    }
    let result = if is_mount_helper() {
        cli::parse::<HelperArgs>().and_then(|args| commands::mount::helper(&args))
    } else if is_fuse_style() {
        commands::mount::fuse_style()
    } else {
        cli::parse::<Cli>().and_then(|cli| run(cli.command))
    };
    match result {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Faulty) => ExitCode::FAILURE,
        // The reader of the output closed it: nothing is wrong.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            erofs_fuse::note(one_line(&error));
            if is_usage_error(&error) {
                ExitCode::from(USAGE_STATUS)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn is_usage_error(error: &anyhow::Error) -> bool {
    // To mount(8), 2 means something else: helpers exit with 1 then.
    // libfuse's programs end with 1 whatever is wrong.
    !is_mount_helper()
        && !is_fuse_style()
        && (error.is::<Usage>()
            || error.is::<erofs_fuse::OptionError>()
            || is_tool_usage_error(error))
}

#[cfg(feature = "tools")]
fn is_tool_usage_error(error: &anyhow::Error) -> bool {
    commands::tools::is_usage_error(error)
}

#[cfg(not(feature = "tools"))]
fn is_tool_usage_error(_: &anyhow::Error) -> bool {
    false
}

/// Whether mount(8) calls, which knows a filesystem's helper by its name.
fn is_mount_helper() -> bool {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&name).file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b"mount.")
}

/// Whether the command line is one of libfuse's.
fn is_fuse_style() -> bool {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    cli::is_fuse_style(Path::new(&program), arguments.next().as_deref())
}

fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Mount(args) => commands::mount::run(&args),
        Command::Umount(args) => commands::mount::umount(&args),
        Command::Upgrade(args) => commands::mount::upgrade(&args),
        Command::Stat(args) => commands::stat::run(&args),
        #[cfg(feature = "tools")]
        Command::Tool(tool) => commands::tools::run(tool),
    }
}
