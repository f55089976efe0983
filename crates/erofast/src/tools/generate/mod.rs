//! Completions and man pages, generated from the flag table by clap's own crates.

mod complete;
mod inside;
mod pages;
#[cfg(test)]
mod tests;

use std::io::{self, Write};

use anyhow::Context;
use erofast_cli::{Outcome, stdout};

use crate::cli::tools::generate::{CompleteArgs, CompletionsArgs, ManArgs};

/// Runs `erofast completions SHELL`.
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<Outcome> {
    stdout().write_all(complete::script(args.shell).as_bytes())?;
    Ok(Outcome::Fine)
}

/// Runs `erofast complete -- WORDS`, which the completion scripts call.
pub fn complete(args: &CompleteArgs) -> anyhow::Result<Outcome> {
    for (word, meaning) in complete::offered(&args.words)? {
        outln!("{word}\t{meaning}");
    }
    Ok(Outcome::Fine)
}

/// Runs `erofast man DIRECTORY`, which writes each page into the directory of its section, as
/// man(1) expects.
pub fn man(args: &ManArgs) -> anyhow::Result<Outcome> {
    let directory = &args.directory;
    let write = || -> io::Result<usize> {
        let pages = pages::all()?;
        for page in &pages {
            let section = directory.join(format!("man{}", page.section));
            std::fs::create_dir_all(&section)?;
            std::fs::write(section.join(&page.name), &page.text)?;
        }
        Ok(pages.len())
    };
    let place = directory.display();
    let pages = write().with_context(|| format!("cannot write man pages to {place}"))?;
    outln!("{pages} pages in man1, man7 and man8 of {place}");
    Ok(Outcome::Fine)
}
