//! One file a subcommand.

pub mod cat;
pub mod check;
pub mod extract;
pub mod generate;
pub mod info;
pub mod lab;
pub mod ls;
pub mod mount;
pub mod stat;
pub mod trace;

use std::io::{self, BufWriter, Write};

use serde::Serialize;

/// Prints a report as JSON, readable and on lines of its own.
pub fn print_json(report: &impl Serialize) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, report).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}
