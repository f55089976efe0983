//! Quantities as text: bytes, times, rates.

/// A count of bytes with a binary unit.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["bytes", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "bytes" {
                count(bytes, "byte")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// A time with two or three digits in the unit that fits: `850 ns`, `12 us`, `1.5 ms`, `2.0 s`.
pub fn time(nanoseconds: f64) -> String {
    let mut value = nanoseconds;
    for unit in ["ns", "us", "ms"] {
        if value < 1000.0 {
            let digits = usize::from(value < 10.0 && unit != "ns");
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} s")
}

/// An age in its two largest units.
pub fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A number with its noun: `1 request`, `2 requests`, `0 entries`.
pub fn count(number: u64, noun: &str) -> String {
    match noun.strip_suffix('y') {
        _ if number == 1 => format!("1 {noun}"),
        _ if noun.ends_with("ch") => format!("{number} {noun}es"),
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_that_fits() {
        assert_eq!((size(1), size(512)), ("1 byte".into(), "512 bytes".into()));
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(3 << 40), "3.0 TiB");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!(time(850.0), "850 ns");
        assert_eq!(time(12_345.0), "12 us");
        assert_eq!(time(1_500_000.0), "1.5 ms");
        assert_eq!(time(2e9), "2.0 s");
        assert_eq!((age(59), age(3_700)), ("59 s".into(), "1 h 1 min".into()));
        assert_eq!(
            (count(1, "request"), count(0, "request")),
            ("1 request".into(), "0 requests".into())
        );
        assert_eq!(
            (count(1, "oddity"), count(2, "oddity")),
            ("1 oddity".into(), "2 oddities".into())
        );
    }
}
