//! The comparison of two reports as text.

use std::fmt::Write;

use super::DiffReport;
use crate::launch::difference;
use crate::validity;

const NAME: usize = 58;
const FIGURE: usize = 12;

impl DiffReport {
    /// One row each: the medians, and the shift between the runs.
    pub fn table(&self) -> String {
        let mut out = validity::lines(&self.not_valid_because);
        let _ = writeln!(
            out,
            "{:<NAME$} {:>FIGURE$} {:>FIGURE$} {:>FIGURE$}",
            "", "old", "new", "shift"
        );
        for row in &self.rows {
            let figure = |value: Option<f64>| {
                value.map_or("-".into(), |value| match row.unit.as_str() {
                    "s" => format!("{value:.3} s"),
                    unit => format!("{value:.0} {unit}"),
                })
            };
            let _ = writeln!(
                out,
                "{:<NAME$} {:>FIGURE$} {:>FIGURE$} {:>FIGURE$}",
                row.name,
                figure(row.old_median),
                figure(row.new_median),
                difference(&row.comparison)
            );
        }
        for (side, names) in [("old", &self.only_old), ("new", &self.only_new)] {
            for name in names {
                let _ = writeln!(out, "only in the {side} report: {name}");
            }
        }
        for line in &self.notices {
            let _ = writeln!(out, "note: {line}");
        }
        out.push_str(
            "\nMedians, and the shift between the runs (Hodges-Lehmann); in parentheses when it is no claim\n\
             (at 1 in 100 for all rows together). The runs were not interleaved: what else changed counts too.\n",
        );
        out
    }
}
