//! Reports as one HTML file that needs no network and no script: it can be mailed and kept.

mod axis;
mod blame;
mod chart;
mod launch;
mod page;
mod style;
mod svg;
mod timeline;

/// Text as HTML.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Microseconds in a suitable unit.
pub(crate) fn time(us: f64) -> String {
    match us.abs() {
        us_abs if us_abs >= 1e6 => format!("{:.2} s", us / 1e6),
        us_abs if us_abs >= 1e4 => format!("{:.1} ms", us / 1e3),
        us_abs if us_abs >= 1e3 => format!("{:.2} ms", us / 1e3),
        us_abs if us_abs >= 10.0 || us_abs == 0.0 => format!("{us:.0} µs"),
        _ => format!("{us:.1} µs"),
    }
}

/// The same on an axis, where values are round: no trailing zeros.
pub(crate) fn tick(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 1e6 => (us / 1e6, "s"),
        us if us >= 1e3 => (us / 1e3, "ms"),
        us => (us, "µs"),
    };
    format!("{} {unit}", (value * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(
            escape("<a href=\"x\">&'"),
            "&lt;a href=&quot;x&quot;&gt;&amp;&#39;"
        );
    }

    #[test]
    fn times_are_read_at_a_glance() {
        let read: Vec<String> = [0.0, 3.25, 850.0, 2914.0, 15253.0, 1.695e6]
            .map(time)
            .into();
        assert_eq!(
            read,
            ["0 µs", "3.2 µs", "850 µs", "2.91 ms", "15.3 ms", "1.70 s"]
        );
    }
}
