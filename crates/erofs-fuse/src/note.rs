//! Lines on the standard error.

use std::fmt::Display;
use std::io::Write;

use crate::text;

/// Writes `erofast: TEXT` as one line to the standard error, with what is not printable as `\xNN`.
/// A standard error that cannot be written (a closed pipe, a full disk) is ignored: `eprintln!`
/// would panic.
pub fn note(text: impl Display) {
    let line = format!("erofast: {}\n", text::line(&text.to_string()));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
