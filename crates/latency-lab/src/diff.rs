//! `lab diff`: compares two reports of the same experiment.

use std::path::Path;

use serde::Serialize;

use crate::Result;
use crate::report::Reports;
use crate::statistics::{Comparison, Modes, Summary, modes};

/// The JSON output of `lab diff`.
#[derive(Debug, Clone, Serialize)]
pub struct DiffReport {
    /// The experiment that both reports are from.
    pub kind: &'static str,
    /// Whether both reports are valid.
    pub valid: bool,
    /// Which reports are not valid, if any.
    pub not_valid_because: Vec<String>,
    /// The figures that both reports have.
    pub rows: Vec<DiffRow>,
    /// Names of the figures that only the old report has.
    pub only_old: Vec<String>,
    /// Names of the figures that only the new report has.
    pub only_new: Vec<String>,
    /// Differences in the settings and environments of the runs.
    pub notices: Vec<String>,
    #[serde(skip)]
    reports: Reports,
}

/// One figure in both reports.
#[derive(Debug, Clone, Serialize)]
pub struct DiffRow {
    /// The names of the engine and of the figure.
    pub name: String,
    /// Unit of the samples.
    pub unit: String,
    /// Median of the old report.
    pub old_median: Option<f64>,
    /// Median of the new report.
    pub new_median: Option<f64>,
    /// Summary of the old report's samples.
    pub old_summary: Option<Summary>,
    /// Summary of the new report's samples.
    pub new_summary: Option<Summary>,
    /// The two groups of the old report's samples, if they fall into two groups; no single number
    /// describes such samples.
    pub old_modes: Option<Modes>,
    /// The two groups of the new report's samples, if they fall into two groups.
    pub new_modes: Option<Modes>,
    /// The new report compared with the old one.
    pub comparison: Comparison,
}

/// Compares two files written by `--json`.
pub fn run(old: &Path, new: &Path) -> Result<DiffReport> {
    let reports = Reports::read(&[old.into(), new.into()])?;
    let mut diff = DiffReport {
        kind: reports.kind(),
        valid: reports.faults().is_empty(),
        not_valid_because: reports.faults(),
        rows: Vec::new(),
        only_old: Vec::new(),
        only_new: Vec::new(),
        notices: reports.notices(),
        reports,
    };
    for figure in diff.reports.figures() {
        let [old, new] = [0, 1].map(|number| figure.rows[number].summary());
        let [old_modes, new_modes] = [0, 1].map(|number| modes(&figure.rows[number].samples));
        match figure.rows[1].against_first.clone() {
            Some(comparison) => diff.rows.push(DiffRow {
                name: figure.name,
                unit: figure.unit,
                old_median: old.map(|summary| summary.median),
                new_median: new.map(|summary| summary.median),
                old_summary: old,
                new_summary: new,
                old_modes,
                new_modes,
                comparison,
            }),
            None if old.is_some() => diff.only_old.push(figure.name),
            None if new.is_some() => diff.only_new.push(figure.name),
            None => {}
        }
    }
    Ok(diff)
}

impl DiffReport {
    /// The medians with verdicts and intervals.
    pub fn table(&self) -> String {
        self.reports.table()
    }
}
