//! The `erofast` command.
#![forbid(unsafe_code)]

mod bar;
mod batch;
mod cli;
mod commands;
mod glob;
mod parts;
mod text;
mod tree;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, HelperArgs, LabCommand, TraceCommand};

/// How a command ended when nothing stood in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it should be.
    Fine,
    /// The thing asked for was found faulty; it was reported already.
    Faulty,
}

fn main() -> ExitCode {
    if let Some(status) = erofs_fuse::run_if_daemon() {
        return status;
    }
    let result = if is_mount_helper() {
        commands::mount::helper(&HelperArgs::parse())
    } else {
        run(Cli::parse().command)
    };
    match result {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Faulty) => ExitCode::FAILURE,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("erofast: {}", one_line(&error));
            if is_wrong_use(&error) {
                ExitCode::from(WRONG_USE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// An error and its causes, those left out that it tells by itself.
fn one_line(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .fold(String::new(), |line, cause| match line.as_str() {
            "" => cause,
            known if known.contains(&cause) => line,
            _ => format!("{line}: {cause}"),
        })
}

/// Exit status of wrong use; the parser of the command line ends with it too.
const WRONG_USE: u8 = 2;

/// A value on the command line that means nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

fn is_wrong_use(error: &anyhow::Error) -> bool {
    // mount(8) gives 2 another meaning, and asks helpers to end with 1 then.
    !is_mount_helper()
        && (error.is::<Usage>()
            || error.is::<erofs_fuse::OptionError>()
            || matches!(error.downcast_ref(), Some(latency_lab::LabError::Usage(_))))
}

/// Whether mount(8) calls, which knows a filesystem's helper by its name.
fn is_mount_helper() -> bool {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&name).file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b"mount.")
}

fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Mount(args) => commands::mount::run(&args),
        Command::Umount(args) => commands::mount::umount(&args),
        Command::Stat(args) => commands::stat::run(&args),
        Command::Info(args) => commands::info::run(&args),
        Command::Ls(args) => commands::ls::run(&args),
        Command::Cat(args) => commands::cat::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Extract(args) => commands::extract::run(&args),
        Command::Trace(TraceCommand::Record(args)) => commands::trace::record(&args),
        Command::Trace(TraceCommand::Latency(args)) => commands::trace::latency(&args),
        Command::Lab(LabCommand::Launch(args)) => commands::lab::launch(&args),
        Command::Lab(LabCommand::Read(args)) => commands::lab::read(&args),
        Command::Lab(LabCommand::Pressure(args)) => commands::lab::pressure(&args),
        Command::Lab(LabCommand::Hotplug(args)) => commands::lab::hotplug(&args),
        Command::Lab(LabCommand::Kernel(args)) => commands::lab::kernel(&args),
        Command::Lab(LabCommand::Guest) => commands::lab::guest(),
        Command::Completions(args) => commands::generate::completions(&args),
        Command::Man(args) => commands::generate::man(&args),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
