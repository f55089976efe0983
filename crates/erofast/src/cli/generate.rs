//! Arguments of the commands that print completions and man pages.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use erofast_cli::examples_help;

/// Arguments of `completions`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast completions"))]
pub struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    pub shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
#[command(after_long_help = examples_help("erofast man"))]
pub struct ManArgs {
    /// Manual directory to write to, like /usr/local/share/man; pages go to man1, man7 and man8 in
    /// it
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
}
