//! Lines on the standard error.

use std::fmt::Display;
use std::io::Write;

/// Writes `erofast: TEXT` as one line to the standard error. A standard error that cannot be
/// written (a closed pipe, a full disk) is ignored: `eprintln!` would panic.
pub fn note(text: impl Display) {
    let line = format!("erofast: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
