//! The `erofast` command.
#![forbid(unsafe_code)]
// The print macros panic if the stream cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use(outln)]
extern crate erofast_cli;

mod cli;
mod commands;
#[cfg(feature = "tools")]
mod tools;

use std::path::Path;
use std::process::ExitCode;

use erofast_cli::{Outcome, Usage, check_stdout, parse, status};

use crate::cli::mount::HelperArgs;
use crate::cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: sys::allocator::Allocator = sys::allocator::Allocator;

fn main() -> ExitCode {
    erofs_mount::set_version(env!("EROFAST_VERSION"));
    if let Some(status) = erofs_mount::run_if_daemon() {
        return status;
    }
    sys::allocator::exit_without_memory(true);
    #[cfg(feature = "tools")]
    if let Some(status) = std::env::args_os()
        .next()
        .and_then(|name| tools::erofs_utils::run(&name))
    {
        return status;
    }
    let result = if is_mount_helper() {
        parse::<HelperArgs>().and_then(|args| commands::mount::helper(&args))
    } else if is_fuse_style() {
        commands::mount::fuse_style()
    } else {
        match parse::<Cli>() {
            Ok(cli) if asks_servers(&cli.command) => {
                return commands::abandonable::run(|| status(run(cli.command), is_usage_error));
            }
            cli => cli.and_then(|cli| run(cli.command)),
        }
    };
    ExitCode::from(status(result, is_usage_error))
}

fn is_usage_error(error: &anyhow::Error) -> bool {
    // For mount(8), status 2 has another meaning, so helpers exit with 1 if the options are wrong.
    // libfuse's programs exit with 1 after any error.
    !is_mount_helper()
        && !is_fuse_style()
        && (error.is::<Usage>() || error.is::<erofs_mount::OptionError>())
}

/// Whether mount(8) started this process, judging by its name.
fn is_mount_helper() -> bool {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&name).file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b"mount.")
}

/// Whether the command line is in libfuse's style.
fn is_fuse_style() -> bool {
    let mut arguments = std::env::args_os();
    let program = arguments.next().unwrap_or_default();
    cli::fuse_style::is_fuse_style(Path::new(&program), arguments.next().as_deref())
}

/// Whether the command queries servers that other users may have started.
fn asks_servers(command: &Command) -> bool {
    matches!(
        command,
        Command::Umount(_) | Command::Upgrade(_) | Command::Stat(_)
    )
}

fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Mount(args) => commands::mount::run(&args),
        Command::Umount(args) => commands::mount::umount(&args),
        Command::Upgrade(args) => commands::mount::upgrade(&args),
        Command::Stat(args) => check_stdout().and_then(|()| commands::stat::run(&args)),
        #[cfg(feature = "tools")]
        Command::Tool(tool) => check_stdout().and_then(|()| tools::run(tool)),
    }
}
