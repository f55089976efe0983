//! Image data as text: names, lines, times.

use std::time::SystemTime;

/// Formats a name for a terminal: bytes that are not printable UTF-8 as `\xNN`, and a backslash as
/// two. Characters that change a line's direction or are invisible count as unprintable.
pub fn name(bytes: &[u8]) -> String {
    printable(bytes, "\\\\")
}

/// The byte that a `\xNN` at the beginning of `text` stands for.
pub fn escaped_byte(text: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = *text else {
        return None;
    };
    let digit = |digit: u8| char::from(digit).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

/// The original bytes of the text `shown`: `\xNN` is a byte, and two backslashes are one backslash.
/// Other backslashes stand for themselves.
pub fn unquoted(shown: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(shown.len());
    let mut rest = shown;
    while let Some((&first, after)) = rest.split_first() {
        if let Some(byte) = escaped_byte(rest) {
            bytes.push(byte);
            rest = &rest[4..];
        } else {
            bytes.push(first);
            rest = after
                .strip_prefix(b"\\")
                .filter(|_| first == b'\\')
                .unwrap_or(after);
        }
    }
    bytes
}

/// Formats a message for a terminal or a log, on one line. Like [`name`], but backslashes are not
/// doubled.
pub fn line(message: &str) -> String {
    printable(message.as_bytes(), "\\")
}

fn printable(bytes: &[u8], backslash: &str) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str(backslash),
                c if c.is_control() || is_invisible(c) => {
                    let mut buffer = [0; 4];
                    escape(c.encode_utf8(&mut buffer).as_bytes(), &mut text);
                }
                c => text.push(c),
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

/// Characters that change how the rest of the line is drawn: directions (Unicode Standard Annex 9),
/// line and paragraph separators, joiners, tags, and other characters of zero width.
fn is_invisible(character: char) -> bool {
    matches!(
        u32::from(character),
        0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180b..=0x180f
            | 0x200b..=0x200f
            | 0x2028..=0x202e
            | 0x2060..=0x206f
            | 0x3164
            | 0xfe00..=0xfe0f
            | 0xfeff
            | 0xffa0
            | 0xfff0..=0xfffb
            | 0x1bca0..=0x1bca3
            | 0x1d173..=0x1d17a
            | 0xe0000..=0xe0fff
    )
}

fn escape(bytes: &[u8], text: &mut String) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02x}"));
    }
}

/// Seconds since 1970; 0 for earlier times.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Formats seconds since 1970 as `YYYY-MM-DD HH:MM:SS` in UTC, for any year.
pub fn time(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400);
    let rest = seconds.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// The proleptic Gregorian date of a day counted from 1970-01-01, computed in eras of 400 years.
/// Years begin in March here, so that the leap day comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    let from_era_zero = days + 719_468;
    let era = from_era_zero.div_euclid(146_097);
    let day_of_era = from_era_zero.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_bytes_stay_on_one_line() {
        assert_eq!(name("grün".as_bytes()), "grün");
        assert_eq!(name(b"a\nb\\\xff"), "a\\x0ab\\\\\\xff");
    }

    #[test]
    fn what_is_shown_is_accepted_back() {
        for name in [
            &b"plain"[..],
            b"\xff",
            b"back\\slash",
            b"\\xff",
            b"a\nb\\\\c",
            "grün".as_bytes(),
        ] {
            assert_eq!(unquoted(super::name(name).as_bytes()), name);
        }
        assert_eq!(unquoted(b"back\\slash"), b"back\\slash");
    }

    #[test]
    fn a_message_stays_on_one_line_and_keeps_its_backslashes() {
        assert_eq!(line("a\nb\\x\u{202e}"), "a\\x0ab\\x\\xe2\\x80\\xae");
    }

    #[test]
    fn no_character_turns_the_line_around() {
        assert_eq!(name("\u{202e}gpj.exe".as_bytes()), "\\xe2\\x80\\xaegpj.exe");
        assert_eq!(
            name("a\u{2066}b\u{feff}".as_bytes()),
            "a\\xe2\\x81\\xa6b\\xef\\xbb\\xbf"
        );
        assert_eq!(name("日本 é".as_bytes()), "日本 é");
    }

    #[test]
    fn times_before_1970_and_far_away_have_their_date() {
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(-1), "1969-12-31 23:59:59");
        assert_eq!(time(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(time(4_294_967_296), "2106-02-07 06:28:16");
        assert_eq!(time(-2_208_988_800), "1900-01-01 00:00:00");
    }
}
