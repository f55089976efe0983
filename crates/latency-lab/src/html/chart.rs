//! Inline SVG: how many launches were at least this fast (CDF), every sample (strip), and the
//! samples in the order of the run. Colours come from the page's style, so light and dark both fit.

use std::fmt::Write;

use super::axis::Axis;
use super::{escape, style, tick, time};

/// Drawing units; the page scales them. Narrow enough that text stays readable on a telephone.
pub(super) const WIDTH: f64 = 480.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;

/// The samples of one engine.
pub(super) struct Series<'a> {
    pub(super) name: &'a str,
    pub(super) values: &'a [f64],
}

/// Of a CDF.
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

    /// Vertical lines with their values below.
    fn time_ticks(&mut self, title: &str) {
        let floor = self.floor();
        for (number, value) in self.x.ticks().into_iter().enumerate() {
            let x = along(self.x.place(value));
            // Zeros sit at the low end of a logarithmic axis.
            let least = if number == 0 && self.x.is_logarithmic() {
                "≤ "
            } else {
                ""
            };
            let _ = writeln!(
                self.svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{floor}\"/>\
                 <text class=\"tick\" x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{least}{}</text>",
                floor + 16.0,
                tick(value)
            );
        }
        let scale = if self.x.is_logarithmic() {
            ", logarithmic"
        } else {
            ""
        };
        self.axis_title(&format!("{title}{scale}"));
    }

    fn axis_title(&mut self, title: &str) {
        let _ = writeln!(
            self.svg,
            "<text class=\"tick\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            along(0.5),
            self.height - 8.0,
            escape(title)
        );
    }

    fn side_tick(&mut self, y: f64, text: &str) {
        let _ = writeln!(
            self.svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            WIDTH - RIGHT,
            LEFT - 5.0,
            y + 4.0
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

fn axis_of(series: &[Series<'_>]) -> Axis {
    Axis::fit(
        series
            .iter()
            .flat_map(|series| series.values.iter().copied()),
    )
}

/// The part of launches that stayed at or below each value.
pub(super) fn cdf(series: &[Series<'_>], title: &str) -> String {
    let mut canvas = Canvas::new(
        CDF_HEIGHT,
        &format!("{title}: part of launches at or below"),
        axis_of(series),
    );
    let floor = canvas.floor();
    let up = |part: f64| floor - part * (floor - TOP);
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        canvas.side_tick(up(part), &format!("{:.0} %", part * 100.0));
    }
    canvas.time_ticks(title);
    let measured = series.iter().enumerate();
    for (number, one) in measured.filter(|(_, one)| !one.values.is_empty()) {
        let mut sorted = one.values.to_vec();
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
            escape(one.name)
        );
    }
    canvas.end()
}

/// Every sample as a dot, a row for each engine, its median as a bar.
pub(super) fn strip(series: &[Series<'_>], title: &str) -> String {
    const ROW: f64 = 44.0;
    let height = TOP + BOTTOM + ROW * series.len() as f64;
    let mut canvas = Canvas::new(height, &format!("{title}: every sample"), axis_of(series));
    canvas.time_ticks(title);
    for (number, one) in series.iter().enumerate() {
        let top = TOP + ROW * number as f64;
        let _ = writeln!(
            canvas.svg,
            "<text class=\"name\" x=\"{LEFT}\" y=\"{:.0}\">{}</text>",
            top + 11.0,
            escape(one.name)
        );
        for (count, value) in one.values.iter().enumerate() {
            // A fixed scatter separates equal values; it has no meaning.
            let y = top + 20.0 + (count * 7 % 18) as f64;
            let tip = format!("{}, sample {}: {}", one.name, count + 1, time(*value));
            canvas.dot(number, along(canvas.x.place(*value)), y, &tip);
        }
        if let Some(median) = crate::statistics::percentile(one.values, 50.0) {
            let x = along(canvas.x.place(median));
            let _ = writeln!(
                canvas.svg,
                "<line class=\"median\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.0}\" y2=\"{:.0}\"><title>median {}</title></line>",
                top + 16.0,
                top + 42.0,
                time(median)
            );
        }
    }
    canvas.end()
}

/// The samples in the order of the run: a drift of the machine shows here.
pub(super) fn over_the_run(series: &[Series<'_>], title: &str) -> String {
    let values = axis_of(series);
    let rounds = series
        .iter()
        .map(|one| one.values.len())
        .max()
        .unwrap_or(0)
        .max(2);
    let mut canvas = Canvas::new(230.0, &format!("{title} in the order of the run"), values);
    let floor = canvas.floor();
    let up = |place: f64| floor - place * (floor - TOP);
    for value in values.ticks() {
        canvas.side_tick(up(values.place(value)), &tick(value));
    }
    canvas.axis_title("launch number");
    for (number, one) in series.iter().enumerate() {
        for (count, value) in one.values.iter().enumerate() {
            let x = along(count as f64 / (rounds - 1) as f64);
            let tip = format!("{}, sample {}: {}", one.name, count + 1, time(*value));
            canvas.dot(number, x, up(values.place(*value)), &tip);
        }
    }
    canvas.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series() -> [Series<'static>; 2] {
        [
            Series {
                name: "kernel-loop",
                values: &[15000.0, 9000.0, 30000.0],
            },
            Series {
                name: "a<b",
                values: &[2900.0, 0.0, 3000.0],
            },
        ]
    }

    #[test]
    fn every_sample_is_a_dot_with_its_value() {
        let svg = strip(&series(), "latency");
        assert_eq!(svg.matches("<circle").count(), 6);
        assert!(svg.contains("kernel-loop, sample 3: 30.0 ms"));
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
    }

    #[test]
    fn each_engine_has_a_line_that_climbs_to_all_its_launches() {
        let svg = cdf(&series(), "latency");
        assert_eq!(svg.matches("class=\"line").count(), 2);
        assert!(svg.contains(&format!("V{TOP:.1}H")), "{svg}");
    }

    #[test]
    fn no_place_lies_outside_of_the_drawing() {
        let svg = over_the_run(&series(), "latency") + &strip(&series(), "latency");
        for place in svg.split("cx=\"").skip(1) {
            let x: f64 = place.split('"').next().unwrap().parse().unwrap();
            assert!((LEFT..=WIDTH - RIGHT).contains(&x), "{x}");
        }
    }
}
