//! Arguments of the commands that print completions and man pages.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Arguments of `completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    pub shell: clap_complete::Shell,
}

/// Arguments of `complete`, which the scripts of the shells call.
#[derive(Args, Debug)]
pub struct CompleteArgs {
    /// What was typed; the last word is completed
    #[arg(last = true)]
    pub words: Vec<OsString>,
}

/// Arguments of `man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Manual directory to write to, like /usr/local/share/man; pages go to man1, man7 and man8 in
    /// it
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
}
