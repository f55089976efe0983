//! Completions and man pages, made from the flag table.

use std::io;

use anyhow::Context;
use clap::CommandFactory;

use crate::Outcome;
use crate::cli::{Cli, CompletionsArgs, ManArgs};

/// `erofast completions SHELL`
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "erofast", &mut script);
    io::Write::write_all(&mut io::stdout(), &script)?;
    Ok(Outcome::Fine)
}

/// `erofast man DIRECTORY`
pub fn man(args: &ManArgs) -> anyhow::Result<Outcome> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
        .with_context(|| format!("cannot write man pages to {}", directory.display()))?;
    Ok(Outcome::Fine)
}
