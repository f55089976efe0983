//! Reports as one HTML file that needs no network and no script: it can be mailed and kept.

mod axis;
mod blame;
mod chart;
mod figure;
mod general;
mod launch;
mod page;
mod style;
mod svg;
mod timeline;

pub(crate) use general::{general_page, pages_beside};

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

/// A value with its unit, as HTML.
pub(crate) fn amount(value: f64, unit: &str) -> String {
    escape(&crate::figure::amount(value, unit)).replace(" us", " µs")
}

/// Microseconds in a suitable unit.
pub(crate) fn time(us: f64) -> String {
    amount(us, "us")
}

/// The same on an axis, where values are round: no trailing zeros. Only microseconds have their
/// unit here, the others in the title of the axis.
pub(crate) fn tick(value: f64, unit: &str) -> String {
    let (value, unit) = match unit {
        "us" if value >= 1e6 => (value / 1e6, " s"),
        "us" if value >= 1e3 => (value / 1e3, " ms"),
        "us" => (value, " µs"),
        _ => (value, ""),
    };
    format!("{}{unit}", (value * 1e6).round() / 1e6)
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
}
