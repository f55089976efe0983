//! The distributions of a launch experiment as one SVG file, for a documentation page. The drawing
//! follows the reader's choice of light or dark mode.

use std::fmt::Write;

use super::chart::{CDF_HEIGHT, WIDTH, cdf};
use super::escape;
use super::style::{self, CHARTS, COLOURS};
use crate::launch::LaunchReport;

const MARGIN: f64 = 16.0;
const LINE: f64 = 20.0;
/// Maximum number of engines on one line of the legend.
const KEYS: usize = 3;

impl LaunchReport {
    /// An SVG file with two charts: the fraction of launches at or below each launch time, and at
    /// or below each scheduling latency.
    pub fn to_svg(&self) -> String {
        drawing(self)
    }
}

fn drawing(report: &LaunchReport) -> String {
    let lines = remarks(report);
    let legend = report.engines.len().div_ceil(KEYS).max(1);
    // Balances the lines: four engines become two lines of two.
    let keys = report.engines.len().div_ceil(legend);
    let charts = MARGIN + (legend + 1) as f64 * LINE;
    let below = charts + CDF_HEIGHT + MARGIN;
    let (width, height) = (2.0 * (WIDTH + MARGIN), below + LINE * lines.len() as f64);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"Launches at or below each scheduling latency and launch time\">\n\
         <style>{COLOURS}{CHARTS}.ground {{ fill: var(--ground); }} .key {{ fill: var(--c); }}</style>\n\
         <rect class=\"ground\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n"
    );
    for (number, engine) in report.engines.iter().enumerate() {
        let place = (number % keys, number / keys);
        out += &key(number, &engine.label(), place, width / keys as f64);
    }
    // Launch time and scheduling latency.
    for (number, mut figure) in report.figures().into_iter().take(2).enumerate() {
        let left = MARGIN + number as f64 * (WIDTH + MARGIN);
        let none = figure.rows.iter_mut().filter(|row| is_none(&row.samples));
        none.for_each(|row| row.samples.clear());
        let chart = cdf(&figure);
        let place =
            format!("<svg x=\"{left}\" y=\"{charts}\" width=\"{WIDTH}\" height=\"{CDF_HEIGHT}\"");
        out += &chart.replacen("<svg", &place, 1);
    }
    for (number, line) in (1..).zip(&lines) {
        let y = below + LINE * f64::from(number) - MARGIN;
        out += &text("tick", MARGIN, y, line);
    }
    out + "</svg>\n"
}

/// Whether all values are zero, as they are for an engine that does not decompress in threads of
/// its own.
fn is_none(values: &[f64]) -> bool {
    values.iter().all(|value| *value == 0.0)
}

/// The legend's entry for one engine, at this column and line.
fn key(number: usize, name: &str, (column, line): (usize, usize), width: f64) -> String {
    let x = MARGIN + column as f64 * width;
    let y = MARGIN + line as f64 * LINE;
    let square = format!(
        "<rect class=\"key {}\" x=\"{x:.0}\" y=\"{y:.0}\" width=\"11\" height=\"11\" rx=\"2\"/>\n",
        style::series(number)
    );
    square + &text("name", x + 18.0, y + 10.0, name)
}

fn text(class: &str, x: f64, y: f64, text: &str) -> String {
    let mut out = String::new();
    let text = escape(text);
    let _ = writeln!(
        out,
        "<text class=\"{class}\" x=\"{x:.0}\" y=\"{y:.0}\">{text}</text>"
    );
    out
}

/// Facts that the drawing must state because it may be shown alone.
fn remarks(report: &LaunchReport) -> Vec<String> {
    let valid = if report.valid { "valid" } else { "NOT VALID" };
    let mut lines = vec![format!(
        "Cumulative fraction of {} cold launches per engine; load {}; {}; {valid}",
        report.iterations,
        report.load,
        report.environment.line()
    )];
    let without = report.engines.iter().filter(|engine| {
        let values = engine.column(|sample| sample.sched_latency_us);
        !values.is_empty() && is_none(&values)
    });
    let without: Vec<String> = without.map(|engine| engine.label()).collect();
    if !without.is_empty() {
        lines.push(format!(
            "{}: decompresses in the program's own thread, so its waits are in the launch time",
            without.join(", ")
        ));
    }
    lines
}
