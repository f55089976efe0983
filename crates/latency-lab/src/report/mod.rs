//! A report that `--json` wrote, whichever experiment made it: its page, its tables, its samples.
//!
//! The experiments make their own pages here too, so a page that is made later, on another machine,
//! is the same.

mod export;
mod several;

pub use several::Reports;

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::environment::Environment;
use crate::figure::Figure;
use crate::hotplug::HotplugReport;
use crate::html::general_page;
use crate::launch::LaunchReport;
use crate::pressure::PressureReport;
use crate::read::ReadReport;
use crate::suite::SuiteReport;
use crate::{LabError, Result};

/// The report of an experiment.
#[derive(Debug, Clone)]
pub enum Report {
    /// Of `lab launch`, or `lab kernel`.
    Launch(Box<LaunchReport>),
    /// Of `lab read`.
    Read(ReadReport),
    /// Of `lab suite`.
    Suite(SuiteReport),
    /// Of `lab pressure`.
    Pressure(Box<PressureReport>),
    /// Of `lab hotplug`.
    Hotplug(Box<HotplugReport>),
}

impl Report {
    /// Reads a file that `--json` wrote.
    pub fn read(file: &Path) -> Result<Report> {
        let fault = |source| LabError::io("reading", file, source);
        let text = std::fs::read(file).map_err(fault)?;
        Report::from_json(&text)
            .map_err(|what| fault(std::io::Error::new(std::io::ErrorKind::InvalidData, what)))
    }

    /// The reason is without the name of the file.
    pub fn from_json(text: &[u8]) -> Result<Report, String> {
        let value: Value = parse(text)?;
        let has = |field: &str| value.get(field).is_some();
        match () {
            () if has("pools") => parse(text).map(|it| Report::Pressure(Box::new(it))),
            () if has("cycles") => parse(text).map(|it| Report::Hotplug(Box::new(it))),
            () if has("results") => parse(text).map(Report::Read),
            () if has("rows") && has("engines") => parse(text).map(Report::Suite),
            () if has("engines") => parse(text).map(|it| Report::Launch(Box::new(it))),
            () => {
                Err("is no report of lab launch, kernel, read, suite, pressure or hotplug".into())
            }
        }
    }

    /// What was measured, row by row; none where the report has no samples.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        match self {
            Report::Launch(report) => report.figures(),
            Report::Read(report) => report.figures(),
            Report::Suite(report) => report.figures(),
            Report::Pressure(report) => report.figures(),
            Report::Hotplug(_) => Vec::new(),
        }
    }

    /// The experiment, as it is called on the command line.
    pub fn kind(&self) -> &'static str {
        match self {
            Report::Launch(_) => "launch",
            Report::Read(_) => "read",
            Report::Suite(_) => "suite",
            Report::Pressure(_) => "pressure",
            Report::Hotplug(_) => "hotplug",
        }
    }

    /// Whether the figures may be relied on.
    pub fn is_valid(&self) -> bool {
        match self {
            Report::Launch(report) => report.valid,
            Report::Read(report) => report.valid,
            Report::Suite(report) => report.valid,
            Report::Pressure(report) => report.valid,
            Report::Hotplug(report) => report.valid,
        }
    }

    /// Where it ran.
    pub(crate) fn environment(&self) -> Option<&Environment> {
        match self {
            Report::Launch(report) => Some(&report.environment),
            Report::Read(report) => Some(&report.environment),
            Report::Suite(report) => report.environment.as_ref(),
            Report::Pressure(report) => Some(&report.environment),
            Report::Hotplug(report) => Some(&report.environment),
        }
    }

    /// The answer alone: a sentence, and a row an engine.
    pub fn answer(&self) -> String {
        match self {
            Report::Launch(report) => report.answer(),
            other => other.table(),
        }
    }

    /// All that the experiment prints.
    pub fn table(&self) -> String {
        match self {
            Report::Launch(report) => report.table(),
            Report::Read(report) => report.table(),
            Report::Suite(report) => report.table(),
            Report::Pressure(report) => report.table(),
            Report::Hotplug(report) => report.table(),
        }
    }

    /// One HTML file that needs no network.
    pub fn to_html(&self) -> String {
        if let Report::Launch(report) = self {
            return report.to_html();
        }
        let title = match self {
            Report::Read(_) => "Reading, engine against engine",
            Report::Suite(_) => "Programs and trees, engine against engine",
            Report::Pressure(_) => "Launches while memory is short",
            _ => "A CPU that goes and comes back",
        };
        general_page(
            title,
            (&self.table(), &self.caption()),
            (&self.figures(), self.is_valid()),
            self.environment(),
            &self.to_json(),
        )
    }

    /// What must stay with a table that is quoted alone.
    pub(crate) fn caption(&self) -> String {
        let valid = if self.is_valid() {
            "valid"
        } else {
            "NOT VALID"
        };
        let line = self.environment().map_or(String::new(), |it| it.line());
        format!("lab {}; {line}; {valid}", self.kind())
    }

    /// The report as JSON, readable.
    pub fn to_json(&self) -> String {
        match self {
            Report::Launch(report) => report.to_json(),
            Report::Read(report) => report.to_json(),
            Report::Suite(report) => report.to_json(),
            Report::Pressure(report) => report.to_json(),
            Report::Hotplug(report) => report.to_json(),
        }
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|reason| match reason.is_eof() {
        true => format!("is no report that --json wrote: cut short ({reason})"),
        false => format!("is no report that --json wrote ({reason})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_kind_are_refused_with_the_place() {
        let fault = |text: &str| Report::from_json(text.as_bytes()).unwrap_err();
        assert_eq!(
            fault("{\"rows\": [], \"kind\": \"launch\"}"),
            "is no report of lab launch, kernel, read, suite, pressure or hotplug"
        );
        assert!(fault("{").contains("line 1 column 1"), "{}", fault("{"));
        let half = fault("{\"engines\": [],\n\"iterations\": -1}");
        assert!(half.contains("line 2 column 16"), "{half}");
    }
}
