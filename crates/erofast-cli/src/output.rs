//! The standard output: lines, and reports as JSON.

use std::io::{self, BufWriter, Write};

use serde::Serialize;

/// As `println!`, but a reader that went away is an error to return, not a panic.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::print_line(format_args!($($text)*))? };
}

/// Refuses to print where nothing would come out.
///
/// # Errors
/// The program was started with its standard output closed.
pub fn check_stdout() -> anyhow::Result<()> {
    anyhow::ensure!(
        !sys::inherited::stdout_was_closed(),
        "the standard output is closed"
    );
    Ok(())
}

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
