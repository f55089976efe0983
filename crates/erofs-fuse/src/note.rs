//! Writes lines to standard error.

use std::fmt::Display;
use std::io::Write;

use crate::text;

/// Writes `erofast: TEXT` as one line to standard error, with unprintable bytes as `\xNN`. Failures
/// to write (a closed pipe, a full disk) are ignored; `eprintln!` would panic.
pub fn note(text: impl Display) {
    let line = format!("erofast: {}\n", text::line(&text.to_string()));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
