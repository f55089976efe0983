//! Sizes as people write them.

/// Bytes of `65536`, `64K`, `8M`, `1G`; powers of 1024.
pub(super) fn parse(text: &str) -> Option<u64> {
    let (number, shift) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn suffixes_are_powers_of_1024() {
        assert_eq!(parse("0"), Some(0));
        assert_eq!(parse("65536"), Some(65536));
        assert_eq!(parse("64k"), Some(64 << 10));
        assert_eq!(parse("8M"), Some(8 << 20));
        assert_eq!(parse("2G"), Some(2 << 30));
    }

    #[test]
    fn what_is_no_size_is_none() {
        for text in ["", "M", "-1", "1T", "1.5G", "99999999999G", "ü"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
