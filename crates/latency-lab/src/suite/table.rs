//! The suite as text: a row each, the first engine in its unit, the others as parts of its time.

use std::fmt::Write;

use super::report::{SuiteCell, SuiteReport, SuiteRow};
use crate::statistics::Comparison;
use crate::validity;

/// Width of the names of rows, and of a figure.
const NAME: usize = 40;
const FIGURE: usize = 11;

impl SuiteReport {
    /// One row each, with the geometric mean and the worst row of each engine.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{} launches of each program, load {}; trees read without load, at most 10 times\n",
            self.iterations, self.load
        );
        if let Some(environment) = &self.environment {
            let _ = writeln!(out, "{}", environment.line());
        }
        out.push_str(&validity::lines(&self.not_valid_because));
        for (number, engine) in (1..).zip(&self.engines) {
            let _ = writeln!(out, "[{number}] {}", engine.engine);
        }
        self.lines(&mut out);
        self.footing(&mut out);
        out
    }

    fn lines(&self, out: &mut String) {
        let heads = (1..=self.engines.len()).map(|number| format!("[{number}]"));
        line(out, "", heads);
        for row in &self.rows {
            let cells = row.cells.iter().enumerate();
            line(
                out,
                &row.name,
                cells.map(|(number, cell)| figure(row, number, cell)),
            );
        }
        let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        let means = self
            .engines
            .iter()
            .map(|engine| ratio(engine.geometric_mean));
        line(out, "geometric mean", means);
        let worst = self.engines.iter().map(|engine| ratio(engine.worst_ratio));
        line(out, "worst row", worst);
    }

    fn footing(&self, out: &mut String) {
        for (number, engine) in (1..).zip(&self.engines).skip(1) {
            if let Some(row) = &engine.worst_row {
                let _ = writeln!(out, "worst row of [{number}]: {row}");
            }
        }
        for left_out in &self.left_out {
            let _ = writeln!(out, "left out: {left_out}");
        }
        out.push_str(
            "\n[1]: medians in their own unit. The others: the time they take, that of [1] being 1; less is better,\n\
             also where the unit is a rate. In parentheses when no difference is shown.\n",
        );
    }
}

fn line(out: &mut String, name: &str, figures: impl Iterator<Item = String>) {
    let mut text = format!("{name:<NAME$}");
    for figure in figures {
        let _ = write!(text, " {figure:>FIGURE$}");
    }
    let _ = writeln!(out, "{}", text.trim_end());
}

fn figure(row: &SuiteRow, number: usize, cell: &SuiteCell) -> String {
    if number == 0 {
        return cell
            .median
            .map_or("-".into(), |median| match row.unit.as_str() {
                "us" => format!("{:.1} ms", median / 1000.0),
                "s" => format!("{median:.3} s"),
                unit => format!("{median:.0} {unit}"),
            });
    }
    let Some(ratio) = cell.time_ratio else {
        return "-".into();
    };
    match cell.against_first.as_ref().is_some_and(Comparison::claims) {
        true => format!("{ratio:.2}"),
        false => format!("({ratio:.2})"),
    }
}
