//! Inline SVG charts of a figure: the cumulative distribution of its samples (CDF), every sample as
//! a dot (strip), and the samples in the order of the run. Colours come from the page's style, so
//! that the charts work in light and dark mode.

use std::fmt::Write;

use super::axis::Axis;
use super::{amount, escape, style, tick};
use crate::figure::{Figure, Row, verdict};
use crate::statistics::Comparison;

/// Width of a chart in drawing units, which the page scales. It is small, so that text stays
/// readable on a phone.
pub(super) const WIDTH: f64 = 480.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;

/// Height of a CDF.
pub(super) const CDF_HEIGHT: f64 = 260.0;

struct Canvas {
    svg: String,
    height: f64,
    x: Axis,
}

fn along(place: f64) -> f64 {
    LEFT + place * (WIDTH - LEFT - RIGHT)
}

impl Canvas {
    fn new(height: f64, label: &str, x: Axis) -> Canvas {
        let svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n",
            escape(label)
        );
        Canvas { svg, height, x }
    }

    fn floor(&self) -> f64 {
        self.height - BOTTOM
    }

    /// Draws vertical grid lines with their values below them.
    fn value_ticks(&mut self, title: &str, unit: &str) {
        for value in self.x.ticks() {
            self.below_tick(along(self.x.place(value)), &tick(value, unit));
        }
        let unit = match unit {
            "us" => String::new(),
            unit => format!(", {unit}"),
        };
        let scale = if self.x.logarithmic {
            ", logarithmic"
        } else {
            ""
        };
        self.axis_title(&format!("{title}{unit}{scale}"));
    }

    fn below_tick(&mut self, x: f64, text: &str) {
        let floor = self.floor();
        self.line("grid", (x, x), (TOP, floor));
        self.text("tick", "middle", (x, floor + 16.0), text);
    }

    fn axis_title(&mut self, title: &str) {
        let at = (along(0.5), self.height - 8.0);
        self.text("tick", "middle", at, title);
    }

    fn side_tick(&mut self, y: f64, text: &str) {
        self.line("grid", (LEFT, WIDTH - RIGHT), (y, y));
        self.text("tick", "end", (LEFT - 5.0, y + 4.0), text);
    }

    fn row_name(&mut self, y: f64, name: &str) {
        self.text("name", "start", (LEFT, y), name);
    }

    fn text(&mut self, class: &str, anchor: &str, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        let _ = writeln!(
            self.svg,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    fn line(&mut self, class: &str, (x1, x2): (f64, f64), (y1, y2): (f64, f64)) {
        let _ = writeln!(
            self.svg,
            "<line class=\"{class}\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    fn dot(&mut self, series: usize, x: f64, y: f64, tip: &str) {
        let _ = writeln!(
            self.svg,
            "<circle class=\"dot {}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}</title></circle>",
            style::series(series),
            escape(tip)
        );
    }

    fn end(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

fn tip(figure: &Figure, row: &Row, count: usize) -> String {
    let value = amount(row.samples[count], &figure.unit);
    format!("{}, sample {}: {value}", row.name, count + 1)
}

fn axis_of(rows: &[Row]) -> Axis {
    Axis::fit(rows.iter().flat_map(|row| row.samples.iter().copied()))
}

/// A chart of the fraction of samples at or below each value.
pub(super) fn cdf(figure: &Figure) -> String {
    let axis = axis_of(&figure.rows);
    let mut canvas = Canvas::new(
        CDF_HEIGHT,
        &format!("{}, cumulative fraction of samples", figure.name),
        axis,
    );
    let floor = canvas.floor();
    let up = |part: f64| floor - part * (floor - TOP);
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        canvas.side_tick(up(part), &format!("{:.0} %", part * 100.0));
    }
    canvas.value_ticks(&figure.name, &figure.unit);
    let measured = figure.rows.iter().enumerate();
    for (number, row) in measured.filter(|(_, row)| !row.samples.is_empty()) {
        let mut sorted = row.samples.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let mut path = format!("M{:.1} {:.1}", along(0.0), up(0.0));
        for (count, value) in sorted.iter().enumerate() {
            let _ = write!(
                path,
                "H{:.1}V{:.1}",
                along(canvas.x.place(*value)),
                up((count + 1) as f64 / sorted.len() as f64)
            );
        }
        let _ = write!(path, "H{:.1}", along(1.0));
        let _ = writeln!(
            canvas.svg,
            "<path class=\"line {}\" d=\"{path}\"><title>{}</title></path>",
            style::series(number),
            escape(&row.name)
        );
    }
    canvas.end()
}

/// A chart of every sample as a dot, with one row per engine and the engine's median as a bar.
pub(super) fn strip(figure: &Figure) -> String {
    const ROW: f64 = 44.0;
    let drawn = figure.rows.iter().filter(|row| !row.samples.is_empty());
    let height = TOP + BOTTOM + ROW * drawn.count() as f64;
    let mut canvas = Canvas::new(
        height,
        &format!("{}, every sample", figure.name),
        axis_of(&figure.rows),
    );
    canvas.value_ticks(&figure.name, &figure.unit);
    let rows = figure.rows.iter().enumerate();
    for (place, (number, row)) in rows.filter(|(_, row)| !row.samples.is_empty()).enumerate() {
        let top = TOP + ROW * place as f64;
        canvas.row_name(top + 11.0, &row.name);
        for (count, value) in row.samples.iter().enumerate() {
            // The vertical position within a row means nothing; it only separates equal values.
            let y = top + 20.0 + (count * 7 % 18) as f64;
            let x = along(canvas.x.place(*value));
            canvas.dot(number, x, y, &tip(figure, row, count));
        }
        if let Some(summary) = row.summary() {
            let x = along(canvas.x.place(summary.median));
            let _ = writeln!(
                canvas.svg,
                "<g><title>median {}</title>",
                amount(summary.median, &figure.unit)
            );
            canvas.line("median", (x, x), (top + 16.0, top + 42.0));
            canvas.svg.push_str("</g>\n");
        }
    }
    canvas.end()
}

/// A chart of the samples in the order of the run, which shows whether the machine drifted.
pub(super) fn over_the_run(figure: &Figure) -> String {
    let values = axis_of(&figure.rows);
    let counts = figure.rows.iter().map(|row| row.samples.len());
    let numbers = Axis::fit([counts.max().unwrap_or(0).max(5) as f64].into_iter());
    let mut canvas = Canvas::new(230.0, &format!("{} in run order", figure.name), numbers);
    let floor = canvas.floor();
    let up = |place: f64| floor - place * (floor - TOP);
    for value in values.ticks() {
        canvas.side_tick(up(values.place(value)), &tick(value, &figure.unit));
    }
    for number in numbers.ticks() {
        canvas.below_tick(along(numbers.place(number)), &number.to_string());
    }
    canvas.axis_title("sample");
    for (number, row) in figure.rows.iter().enumerate() {
        for (count, value) in row.samples.iter().enumerate() {
            let x = along(numbers.place((count + 1) as f64));
            let y = up(values.place(*value));
            canvas.dot(number, x, y, &tip(figure, row, count));
        }
    }
    canvas.end()
}

/// A named shift with its interval, in the colour of a row.
pub(super) struct Shift {
    pub(super) name: String,
    pub(super) series: usize,
    pub(super) of: Comparison,
}

/// A chart of the shifts in per cent with their intervals; empty if no shift has a percentage.
pub(super) fn shifts(title: &str, shifts: &[Shift]) -> String {
    const ROW: f64 = 36.0;
    let drawn = shifts
        .iter()
        .filter_map(|it| Some((it, it.of.interval_percent?)));
    let ends: Vec<f64> = drawn
        .clone()
        .flat_map(|(_, it)| [it.low, it.high])
        .collect();
    if ends.is_empty() {
        return String::new();
    }
    let height = TOP + BOTTOM + ROW * ends.len() as f64 / 2.0;
    let mut canvas = Canvas::new(height, title, Axis::fit(ends.into_iter()));
    canvas.value_ticks(title, "%");
    let zero = along(canvas.x.place(0.0));
    let floor = canvas.floor();
    canvas.line("zero", (zero, zero), (TOP, floor));
    for (number, (shift, interval)) in drawn.enumerate() {
        let top = TOP + ROW * number as f64;
        canvas.row_name(top + 11.0, &shift.name);
        let place = |canvas: &Canvas, percent| along(canvas.x.place(percent));
        let (from, to) = (place(&canvas, interval.low), place(&canvas, interval.high));
        let (y, class) = (top + 24.0, format!("line {}", style::series(shift.series)));
        canvas.line(&class, (from, to), (y, y));
        let middle = place(&canvas, shift.of.difference_percent.unwrap_or_default());
        canvas.dot(shift.series, middle, y, &verdict(&shift.of, ""));
    }
    canvas.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        let row = |name: &str, samples: [f64; 3]| Row {
            name: name.into(),
            samples: samples.into(),
            against_first: None,
        };
        Figure {
            name: "latency".into(),
            of: "",
            unit: "us".into(),
            rows: vec![
                row("kernel-loop", [15000.0, 9000.0, 30000.0]),
                row("a<b", [2900.0, 0.0, 3000.0]),
            ],
        }
    }

    #[test]
    fn every_sample_is_a_dot_with_its_value() {
        let svg = strip(&figure());
        assert_eq!(svg.matches("<circle").count(), 6);
        assert!(svg.contains("kernel-loop, sample 3: 30.0 ms"));
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
    }

    #[test]
    fn each_engine_has_a_line_that_climbs_to_all_its_launches() {
        let svg = cdf(&figure());
        assert_eq!(svg.matches("class=\"line").count(), 2);
        assert!(svg.contains(&format!("V{TOP:.1}H")), "{svg}");
    }

    #[test]
    fn no_place_lies_outside_of_the_drawing_and_each_axis_has_ticks() {
        for svg in [over_the_run(&figure()), strip(&figure())] {
            for place in svg.split("cx=\"").skip(1) {
                let x: f64 = place.split('"').next().unwrap().parse().unwrap();
                assert!((LEFT..=WIDTH - RIGHT).contains(&x), "{x}");
            }
            assert!(svg.matches("text-anchor=\"middle\"").count() >= 4, "{svg}");
        }
    }

    #[test]
    fn intervals_are_drawn_around_a_line_at_zero() {
        let side = |by: f64| (0..20).map(|k| by + f64::from(k % 5)).collect::<Vec<f64>>();
        let less = crate::statistics::compare(&side(100.0), &side(60.0));
        let shift = Shift {
            name: "erofast".into(),
            series: 1,
            of: less,
        };
        let svg = shifts("shift", std::slice::from_ref(&shift));
        assert!(
            svg.contains(">0</text>") && svg.contains("shift, %") && svg.contains("class=\"zero\""),
            "{svg}"
        );
        assert!(svg.contains("<line class=\"line s1\"") && svg.contains("lower: "));
        let open = crate::statistics::compare(&[1.0], &[1.0]);
        assert_eq!(shifts("shift", &[Shift { of: open, ..shift }]), "");
    }
}
