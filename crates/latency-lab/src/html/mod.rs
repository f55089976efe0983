//! Reports as one HTML file that needs no network and no script, so that it can be mailed and kept.

mod axis;
mod chart;
mod escape;
mod page;
pub(crate) mod style;
mod svg;
mod timeline;

pub use escape::escape;
pub use page::page;
pub(crate) use page::report;
pub(crate) use timeline::timelines;

/// A value with its unit, as HTML.
pub(crate) fn amount(value: f64, unit: &str) -> String {
    escape(&crate::figure::amount(value, unit)).replace(" us", " µs")
}

/// Microseconds in a suitable unit.
pub(crate) fn time(us: f64) -> String {
    amount(us, "us")
}

/// The label of a tick, without trailing zeros. Only times are labelled with their unit; other
/// units are in the title of the axis.
pub(crate) fn tick(value: f64, unit: &str) -> String {
    let (value, unit) = match unit {
        "us" if value >= 1e6 => (value / 1e6, " s"),
        "us" if value >= 1e3 => (value / 1e3, " ms"),
        "us" => (value, " µs"),
        _ => (value, ""),
    };
    format!("{}{unit}", (value * 1e6).round() / 1e6)
}
