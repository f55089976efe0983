//! One file a subcommand.

/// As `println!`, but a reader that went away is an error to return, not a panic.
macro_rules! outln {
    ($($text:tt)*) => { $crate::commands::print_line(format_args!($($text)*))? };
}

#[cfg(feature = "tools")]
pub mod cat;
#[cfg(feature = "tools")]
pub mod check;
#[cfg(feature = "tools")]
pub mod extract;
#[cfg(feature = "tools")]
pub mod generate;
#[cfg(feature = "tools")]
pub mod info;
#[cfg(feature = "tools")]
pub mod lab;
#[cfg(feature = "tools")]
pub mod ls;
pub mod mount;
#[cfg(feature = "tools")]
pub mod profile;
#[cfg(feature = "tools")]
pub mod requests;
pub mod stat;
#[cfg(feature = "tools")]
pub mod tools;
#[cfg(feature = "tools")]
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

/// Writes a line to the standard output; see `outln!`.
pub fn print_line(line: std::fmt::Arguments<'_>) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}
