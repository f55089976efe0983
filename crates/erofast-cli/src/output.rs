//! Standard output: lines, and reports as JSON.

use std::io::{self, BufWriter, IoSlice, StdoutLock, Write};

use serde::Serialize;

/// Like `println!`, but returns an error instead of panicking if the reader has gone away.
#[macro_export]
macro_rules! outln {
    ($($text:tt)*) => { $crate::print_line(format_args!($($text)*))? };
}

/// Checks that standard output is open.
///
/// # Errors
/// The program was started with standard output closed.
pub fn check_stdout() -> anyhow::Result<()> {
    anyhow::ensure!(
        !sys::inherited::stdout_was_closed(),
        "standard output is closed"
    );
    Ok(())
}

/// A lock on standard output, whose write errors name standard output.
#[derive(Debug)]
pub struct Stdout(StdoutLock<'static>);

/// Locks standard output.
pub fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_vectored(parts).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// `Interrupted` is returned unchanged, because it makes the caller retry the write.
fn named(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, format!("standard output: {error}")),
    }
}

/// Prints a report as JSON, indented on separate lines.
pub fn print_json(report: &impl Serialize) -> anyhow::Result<()> {
    let mut out = BufWriter::new(stdout());
    serde_json::to_writer_pretty(&mut out, report).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Writes a line to standard output; see `outln!`.
pub fn print_line(line: std::fmt::Arguments<'_>) -> io::Result<()> {
    writeln!(stdout(), "{line}")
}
