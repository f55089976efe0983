//! Sizes with a unit, as `8M`.

use std::num::IntErrorKind;

/// Why a text is not a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotASize {
    /// It has no such form.
    NoNumber,
    /// It does not fit 64 bits.
    TooLarge,
}

/// Bytes of `65536`, `64K`, `8M`, `1G`; powers of 1024.
pub(super) fn parse(text: &str) -> Result<u64, NotASize> {
    let (number, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number = number.parse::<u64>().map_err(|error| match error.kind() {
        IntErrorKind::PosOverflow => NotASize::TooLarge,
        _ => NotASize::NoNumber,
    })?;
    number.checked_mul(1 << shift).ok_or(NotASize::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::{NotASize, parse};

    #[test]
    fn suffixes_are_powers_of_1024() {
        assert_eq!(parse("0"), Ok(0));
        assert_eq!(parse("65536"), Ok(65536));
        assert_eq!(parse("64k"), Ok(64 << 10));
        assert_eq!(parse("8M"), Ok(8 << 20));
        assert_eq!(parse("2G"), Ok(2 << 30));
    }

    #[test]
    fn what_is_no_size_is_none() {
        for text in ["", "M", "-1", "1T", "1.5G", "ü"] {
            assert_eq!(parse(text), Err(NotASize::NoNumber), "{text}");
        }
        for text in ["99999999999G", "99999999999999999999"] {
            assert_eq!(parse(text), Err(NotASize::TooLarge), "{text}");
        }
    }
}
