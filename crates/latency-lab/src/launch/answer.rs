//! The answer: a sentence, and a row an engine.

use std::fmt::Write;

use super::report::LaunchReport;
use crate::figure::{Row, amount, median_and_claim};
use crate::statistics::{LEVEL, SAME_PERCENT, Verdict};
use crate::validity;

/// Widest line.
const WIDTH: usize = 100;
/// Narrowest and widest column of names; longer ones push their row.
const NAME: std::ops::RangeInclusive<usize> = 6..=26;
/// A median with what may be claimed of it.
const FIGURE: usize = 36;

impl LaunchReport {
    /// A sentence, and a row an engine: its median launch time and waits, each with verdict and
    /// interval.
    pub fn answer(&self) -> String {
        let mut out = self.answer_alone();
        let notes = self.notices.len() + self.left_out.len();
        let notes = match notes {
            0 => String::new(),
            1 => ", 1 note".into(),
            count => format!(", {count} notes"),
        };
        let _ = writeln!(out, "The other figures{notes}: --details.");
        out
    }

    pub(super) fn answer_alone(&self) -> String {
        let mut out = validity::faults(&self.not_valid_because);
        out += &wrapped(&self.conclusion());
        out += &wrapped(&self.caption());
        out.push('\n');
        self.rows(&mut out);
        out
    }

    /// Whether launches are shorter.
    pub(crate) fn conclusion(&self) -> String {
        let launch = &self.figures()[0];
        let Some(first) = launch.rows.first().filter(|_| self.valid) else {
            return "No conclusion: the run is not valid.".into();
        };
        if launch.rows.len() == 1 {
            let median = first.summary().map_or(0.0, |summary| summary.median);
            return format!(
                "A launch from {} takes {} (median).",
                first.name,
                amount(median, "us")
            );
        }
        let with = |verdict| {
            let of = |row: &&Row| row.against_first.as_ref().map(|it| it.verdict) == Some(verdict);
            launch.rows.iter().filter(of).collect::<Vec<&Row>>()
        };
        let [lower, higher] = [(Verdict::Lower, "less time"), (Verdict::Higher, "more")]
            .map(|(verdict, word)| (with(verdict), word));
        let claims = [lower, higher].into_iter().flat_map(|(rows, word)| {
            let claim = move |row: &Row| format!("{} {word} from {}", size(row), row.name);
            rows.into_iter().map(claim)
        });
        let mut claims: Vec<String> = claims.collect();
        let same = with(Verdict::NoDifference);
        if !same.is_empty() {
            let within = format!("(within {SAME_PERCENT:.0} %)");
            claims.push(format!("as long from {} {within}", names(&same)));
        }
        let mut parts = Vec::new();
        if !claims.is_empty() {
            parts.push(format!("a launch takes {}", claims.join(", ")));
        }
        let open = with(Verdict::NotShown);
        if !open.is_empty() {
            parts.push(format!(
                "no difference in time is shown for {}",
                names(&open)
            ));
        }
        format!("Against {}, {}.", first.name, parts.join("; "))
    }

    /// What must stay with a table that is quoted alone.
    pub(crate) fn caption(&self) -> String {
        let valid = if self.valid { "valid" } else { "NOT VALID" };
        let machine = match &self.machine {
            Some(machine) if machine.emulated => {
                ", EMULATED: these times compare with each other only"
            }
            Some(_) => ", in a virtual machine",
            None => "",
        };
        format!(
            "{} launches per engine, load {}; {}{machine}; {valid}",
            self.launches(),
            self.load,
            self.environment.line()
        )
    }

    fn rows(&self, out: &mut String) {
        let waits = self.waits();
        let names = self.engines.iter().map(|engine| engine.engine.len());
        let width = names.max().unwrap_or(0).clamp(*NAME.start(), *NAME.end());
        let figures = self.figures();
        let (launch, waits) = (&figures[0], &figures[waits]);
        let spoilt = if self.valid { "" } else { "NOT VALID" };
        let heads = format!("{spoilt:<width$}  {:<FIGURE$}  {}", launch.name, waits.name);
        let _ = writeln!(out, "{}", heads.trim_end());
        for (time, waits) in launch.rows.iter().zip(&waits.rows) {
            let name = &time.name;
            let [time, waits] = [time, waits].map(|row| median_and_claim(row, "us"));
            let line = format!("{name:<width$}  {time:<FIGURE$}  {waits}");
            let _ = writeln!(out, "{}", line.trim_end());
        }
        let sure = (1.0 - LEVEL) * 100.0;
        let _ = writeln!(
            out,
            "\nMedians; the shift against the first engine lies in the interval ({sure:.0} %, all rows together)."
        );
        let _ = writeln!(out, "{}: {}.", waits.name, waits.of);
    }

    /// Of the figures, the waits that every engine has: where one decompresses in the program's own
    /// thread, those of the program.
    fn waits(&self) -> usize {
        let own = |wakeups: Option<f64>| wakeups.is_none_or(|wakeups| wakeups > 0.0);
        match self.engines.iter().all(|engine| own(engine.wakeups())) {
            true => 1,
            false => 2,
        }
    }
}

fn names(rows: &[&Row]) -> String {
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    names.join(" and ")
}

/// Of the shift.
fn size(row: &Row) -> String {
    let Some(comparison) = &row.against_first else {
        return String::new();
    };
    match comparison.difference_percent.map(f64::abs) {
        Some(percent) if percent >= 1.0 => format!("{percent:.0} %"),
        Some(percent) => format!("{percent:.1} %"),
        None => amount(comparison.difference.unwrap_or_default().abs(), "us"),
    }
}

/// Lines of at most [`WIDTH`] characters.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        let more = word.chars().count() + 1;
        if length > 0 && length + more > WIDTH {
            out.push('\n');
            length = 0;
        }
        if length > 0 {
            out.push(' ');
        }
        out += word;
        length += more;
    }
    out + "\n"
}
