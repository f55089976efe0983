//! Opens the traces named on the command line, and compiles patterns for names within them.

use std::io::{Cursor, Read};
use std::path::Path;

use anyhow::{Context, ensure};
use erofast_cli::Usage;
use regex::Regex;
use sched_trace::{ReadOptions, Trace};

/// The name of a trace in messages.
pub fn name(file: &Path) -> String {
    match file.to_str() {
        Some("-") => "standard input".into(),
        _ => file.display().to_string(),
    }
}

/// Compiles `--match`. The library's error has several lines; the last one is the reason.
pub fn pattern(text: &str) -> anyhow::Result<Regex> {
    Regex::new(text).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default();
        let reason = reason.trim_start_matches("error: ");
        Usage(format!(
            "--match {text}: not a regular expression: {reason}"
        ))
        .into()
    })
}

/// Maximum size of a trace on standard input, in bytes.
const INPUT: u64 = 4 << 30;

/// Reads a trace from a file, or from standard input.
pub fn open(file: &Path) -> anyhow::Result<Trace> {
    let options = ReadOptions::default();
    if file != Path::new("-") {
        return Ok(sched_trace::open(file, &options)?);
    }
    let mut bytes = Vec::new();
    let input = std::io::stdin().lock();
    input
        .take(INPUT + 1)
        .read_to_end(&mut bytes)
        .context("standard input")?;
    ensure!(
        bytes.len() as u64 <= INPUT,
        "standard input: more than {INPUT} bytes; name a file instead"
    );
    Ok(sched_trace::read(
        Cursor::new(bytes),
        "standard input".as_ref(),
        &options,
    )?)
}
