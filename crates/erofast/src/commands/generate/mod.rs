//! Completions and man pages, made from the flag table.
//!
//! clap_mangen renders a `clap::Command` only: mount options, examples, erofast(7) (from Markdown)
//! and mount.erofast(8) would need a roff writer beside it, so one writer makes all pages.

mod arguments;
mod bash;
mod complete;
mod fish;
mod markdown;
mod pages;
mod roff;
#[cfg(test)]
mod shells;
#[cfg(test)]
mod tests;
mod words;
mod zsh;

use std::io::{self, Write};

use anyhow::Context;
use erofast_cli::Outcome;

use crate::cli::{CompletionsArgs, ManArgs};

/// `erofast completions SHELL`
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<Outcome> {
    io::stdout().write_all(complete::script(args.shell)?.as_bytes())?;
    Ok(Outcome::Fine)
}

/// `erofast man DIRECTORY`: each page in the directory of its section, as man(1) expects it.
pub fn man(args: &ManArgs) -> anyhow::Result<Outcome> {
    let directory = &args.directory;
    let write = || {
        pages::all().iter().try_for_each(|page| {
            let section = directory.join(format!("man{}", page.section));
            std::fs::create_dir_all(&section)?;
            std::fs::write(section.join(&page.name), &page.text)
        })
    };
    write().with_context(|| format!("cannot write man pages to {}", directory.display()))?;
    Ok(Outcome::Fine)
}
