//! Completions and man pages, made from the flag table.

mod complete;
mod markdown;
mod pages;
mod roff;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use anyhow::Context;

use crate::cli::{CompletionsArgs, ManArgs};
use crate::outcome::Outcome;

/// `erofast completions SHELL`
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<Outcome> {
    io::stdout().write_all(complete::script(args.shell)?.as_bytes())?;
    Ok(Outcome::Fine)
}

/// `erofast man DIRECTORY`
pub fn man(args: &ManArgs) -> anyhow::Result<Outcome> {
    let directory = &args.directory;
    let write = || {
        std::fs::create_dir_all(directory)?;
        pages::all()
            .iter()
            .try_for_each(|page| std::fs::write(directory.join(&page.name), &page.text))
    };
    write().with_context(|| format!("cannot write man pages to {}", directory.display()))?;
    Ok(Outcome::Fine)
}
