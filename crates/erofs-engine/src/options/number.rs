//! Numbers as values of options.

use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

use super::size::{self, NotASize};

/// The value of an option that takes a number.
///
/// # Errors
/// One line that names the option and its value.
pub fn number_option<T: FromStr<Err = ParseIntError>>(name: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => too_large(name, text),
            _ => format!("{name}={text}: must be a number"),
        })
}

/// The value of an option that takes bytes, with or without a unit.
pub(super) fn size_option(name: &str, text: &str) -> Result<u64, String> {
    size::parse(text).map_err(|error| match error {
        NotASize::TooLarge => too_large(name, text),
        NotASize::NoNumber => {
            format!("{name}={text}: must be bytes, or a number with K, M or G")
        }
    })
}

fn too_large(name: &str, text: &str) -> String {
    format!("{name}={text}: the number is too large")
}
