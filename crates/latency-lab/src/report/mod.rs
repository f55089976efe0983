//! Reads a report of any experiment, as `--json` writes it, and makes its page, its tables and its
//! samples.
//!
//! The experiments also make their pages here, so a page that is made later or on another machine
//! is the same.

mod check;
mod several;

use check::{launches, numbered, series};
pub use several::Reports;

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Doing;
use crate::findings::Findings;
use crate::hotplug::HotplugReport;
use crate::launch::LaunchReport;
use crate::pressure::PressureReport;
use crate::read::ReadReport;
use crate::suite::SuiteReport;
use crate::{Result, html};

/// The report of an experiment.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Report {
    /// A report of `lab launch`, `lab run` or `lab kernel`.
    Launch(Box<LaunchReport>),
    /// A report of `lab read`.
    Read(Box<ReadReport>),
    /// A report of `lab suite`.
    Suite(Box<SuiteReport>),
    /// A report of `lab pressure`.
    Pressure(Box<PressureReport>),
    /// A report of `lab hotplug`.
    Hotplug(Box<HotplugReport>),
}

impl Report {
    /// Reads a file written by `--json`.
    pub fn read(file: &Path) -> Result<Report> {
        let text = std::fs::read(file).doing("reading", file)?;
        let report = Report::from_json(&text).map_err(std::io::Error::other);
        report.doing("reading", file)
    }

    /// Parses a report; the error does not name the file.
    pub fn from_json(text: &[u8]) -> Result<Report, String> {
        let mut report = Report::parsed(text)?;
        report.compute();
        check(&report)?;
        report.judge();
        Ok(report)
    }

    fn parsed(text: &[u8]) -> Result<Report, String> {
        let value: Value = parse(text)?;
        let has = |field: &str| value.get(field).is_some();
        match () {
            () if has("pools") => parse(text).map(Report::Pressure),
            () if has("cycles") => parse(text).map(Report::Hotplug),
            () if has("results") => parse(text).map(Report::Read),
            () if has("rows") && has("engines") => parse(text).map(Report::Suite),
            () if has("engines") => parse(text).map(Report::Launch),
            () => Err(
                "not a report of lab launch, run, kernel, read, suite, pressure or hotplug".into(),
            ),
        }
    }

    /// Computes figures and verdicts from the samples, ignoring those in the file.
    fn compute(&mut self) {
        match self {
            Report::Launch(it) => it.compute(),
            Report::Read(it) => it.compute(),
            Report::Suite(it) => it.compute(),
            Report::Pressure(it) => it.compute(),
            // A hotplug report has only counts, from which nothing is computed.
            Report::Hotplug(_) => {}
        }
    }

    /// Marks a report as not valid if it claims to be valid but its content contradicts the claim.
    fn judge(&mut self) {
        match self {
            Report::Launch(it) => {
                it.not_valid_because.extend(it.contradictions());
                judge(&mut it.valid, it.interrupted, &mut it.not_valid_because);
            }
            Report::Read(it) => it.valid &= it.is_whole(),
            Report::Suite(it) => judge(&mut it.valid, it.interrupted, &mut it.not_valid_because),
            Report::Pressure(it) => {
                it.not_valid_because.extend(it.contradictions());
                judge(&mut it.valid, it.interrupted, &mut it.not_valid_because);
            }
            Report::Hotplug(it) => it.valid &= it.is_clean(),
        }
    }

    pub(crate) fn findings(&self) -> Findings {
        match self {
            Report::Launch(report) => report.findings(),
            Report::Read(report) => report.findings(),
            Report::Suite(report) => report.findings(),
            Report::Pressure(report) => report.findings(),
            Report::Hotplug(report) => report.findings(),
        }
    }

    /// Why the figures must not be used; empty if the report is valid.
    pub fn faults(&self) -> Vec<String> {
        self.findings().faults
    }

    /// The answer alone: a sentence, and a row per engine.
    pub fn answer(&self) -> String {
        self.findings().answer()
    }

    /// The whole report as text.
    pub fn table(&self) -> String {
        self.findings().table()
    }

    /// One HTML file, which needs no network.
    pub fn to_html(&self) -> String {
        html::report(&self.findings(), &self.to_json())
    }

    /// The report as readable JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

fn judge(valid: &mut bool, interrupted: bool, reasons: &mut Vec<String>) {
    if interrupted && reasons.is_empty() {
        reasons.push("the run was interrupted".into());
    }
    *valid &= reasons.is_empty();
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|reason| {
        let (line, column) = (reason.line(), reason.column());
        let ends = if reason.is_eof() {
            ": it ends early"
        } else {
            ""
        };
        format!("not a report written with --json{ends} (line {line}, column {column})")
    })
}

/// Refuses samples that no run can produce; the error does not name the file. The engines must
/// already have been numbered.
fn check(report: &Report) -> Result<(), String> {
    match report {
        Report::Launch(it) => {
            let engines = &it.engines;
            numbered(engines.iter().map(|it| (it.engine.as_str(), it.number)))?;
            engines.iter().try_for_each(launches)
        }
        Report::Read(it) => it.results.iter().try_for_each(|result| {
            let name = format!("{}, {}", result.label(), result.name());
            let beside = it.results.iter().filter(|other| result.is_beside(other));
            numbered(beside.map(|it| (it.engine.as_str(), it.number)))?;
            series(&name, &result.rounds, &result.samples)
        }),
        Report::Suite(it) => it.rows.iter().try_for_each(|row| {
            numbered(row.cells.iter().map(|it| (it.engine.as_str(), it.number)))?;
            row.cells.iter().try_for_each(|cell| {
                let name = format!("{}, {}", cell.engine, row.name);
                series(&name, &cell.rounds, &cell.samples)
            })
        }),
        Report::Pressure(it) => it.pools.iter().try_for_each(|pool| {
            let times: Vec<f64> = pool.samples.iter().map(|it| it.launch_us).collect();
            series(&format!("{} pages", pool.reserved_pages), &[], &times)
        }),
        Report::Hotplug(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_kind_are_refused_with_the_place() {
        let fault = |text: &str| Report::from_json(text.as_bytes()).unwrap_err();
        assert_eq!(
            fault("{\"rows\": [], \"kind\": \"launch\"}"),
            "not a report of lab launch, run, kernel, read, suite, pressure or hotplug"
        );
        assert!(
            fault("{").contains("it ends early (line 1, column 1)"),
            "{}",
            fault("{")
        );
        let half = fault("{\"engines\": [],\n\"iterations\": -1}");
        assert!(half.contains("--json (line 2, column 16)"), "{half}");
    }
}
