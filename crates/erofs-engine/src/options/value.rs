//! Numbers and words as values of options.

use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

/// The value of an option that takes a number.
///
/// # Errors
/// One line that names the option and its value.
pub fn number_option<T: FromStr<Err = ParseIntError>>(name: &str, text: &str) -> Result<T, String> {
    number(name, text, text, "must be a whole number, 0 or more")
}

/// The number that `digits` state, in the value `text` of an option.
pub(super) fn number<T: FromStr<Err = ParseIntError>>(
    name: &str,
    text: &str,
    digits: &str,
    form: &str,
) -> Result<T, String> {
    digits
        .parse()
        .map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => too_large(name, text),
            _ => format!("{name}={text}: {form}"),
        })
}

fn too_large(name: &str, text: &str) -> String {
    format!("{name}={text}: the number is too large")
}

/// The value of an option that takes a number of bytes: `65536`, `64K`, `8M`, `1G`; powers of 1024.
pub fn size_option(name: &str, text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let form = "must be a number of bytes, optionally followed by K, M or G";
    let bytes = number::<u64>(name, text, digits, form)?.checked_mul(1 << shift);
    bytes.ok_or_else(|| too_large(name, text))
}

/// The value of an option that takes one of a few words.
///
/// # Errors
/// One line that names the option and the valid words.
pub fn choice_option<T: Copy>(name: &str, text: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    let (last, others) = words.split_last().unwrap_or((&"", &[]));
    let others = others.join(", ");
    Err(format!("{name}={text}: must be {others} or {last}"))
}

#[cfg(test)]
mod tests {
    use super::size_option;

    #[test]
    fn suffixes_are_powers_of_1024() {
        let sizes = ["0", "65536", "64k", "8M", "2G"].map(|text| size_option("cache", text));
        assert_eq!(sizes, [0, 65536, 64 << 10, 8 << 20, 2 << 30].map(Ok));
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_reason() {
        let reason = |text| size_option("cache", text).unwrap_err();
        for text in ["", "M", "-1", "1T", "1.5G", "ü"] {
            assert!(reason(text).ends_with("K, M or G"), "{text}");
        }
        for text in ["99999999999G", "99999999999999999999"] {
            assert!(reason(text).ends_with("too large"), "{text}");
        }
    }
}
