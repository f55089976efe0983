//! The `erofast` command.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod text;
mod tree;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

/// How a command ended when nothing stood in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it should be.
    Fine,
    /// The thing asked for was found faulty; it was reported already.
    Faulty,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Info(args) => commands::info::run(&args),
        Command::Ls(args) => commands::ls::run(&args),
        Command::Cat(args) => commands::cat::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Completions(args) => commands::generate::completions(&args),
        Command::Man(args) => commands::generate::man(&args),
    };
    match result {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Faulty) => ExitCode::FAILURE,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("erofast: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
