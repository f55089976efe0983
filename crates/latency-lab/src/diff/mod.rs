//! Two reports of one experiment, of different days, devices or versions, by the rules of the lab.
//!
//! Unlike engines of one run, these samples were not interleaved: what else differs between the two
//! runs is part of the difference, so the environments are compared as well.

mod series;
mod table;

pub use series::Kind;

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::statistics::{Comparison, compare, correct, median};
use crate::{LabError, Result};
use series::{Series, series};

/// What `lab diff` prints as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct DiffReport {
    /// Which experiment made both.
    pub kind: Kind,
    /// Both reports are valid.
    pub valid: bool,
    /// If not, the reports that are not.
    pub not_valid_because: Vec<String>,
    /// Figures of both reports, in the order of the new one.
    pub rows: Vec<DiffRow>,
    /// Names that only the old report has.
    pub only_old: Vec<String>,
    /// Names that only the new report has.
    pub only_new: Vec<String>,
    /// How the environments of the runs differ.
    pub notices: Vec<String>,
}

/// One figure in both reports.
#[derive(Debug, Clone, Serialize)]
pub struct DiffRow {
    /// Engine and figure.
    pub name: String,
    /// Of the samples.
    pub unit: String,
    /// Median of the old report.
    pub old_median: Option<f64>,
    /// Median of the new report.
    pub new_median: Option<f64>,
    /// The new report against the old one.
    pub comparison: Comparison,
}

/// Compares two files that `--json` wrote.
pub fn run(old: &Path, new: &Path) -> Result<DiffReport> {
    let (old_report, new_report) = (load(old)?, load(new)?);
    diff(
        (&old_report, &old.display().to_string()),
        (&new_report, &new.display().to_string()),
    )
}

fn load(file: &Path) -> Result<Value> {
    let text = std::fs::read(file).map_err(|source| LabError::io("reading", file, source))?;
    serde_json::from_slice(&text).map_err(|reason| {
        let what = format!("is no report that --json wrote ({reason})");
        let source = std::io::Error::new(std::io::ErrorKind::InvalidData, what);
        LabError::io("reading", file, source)
    })
}

fn diff(old: (&Value, &str), new: (&Value, &str)) -> Result<DiffReport> {
    let (old_kind, old_series) = series(old.0, old.1)?;
    let (kind, new_series) = series(new.0, new.1)?;
    if old_kind != kind {
        return Err(LabError::Usage(format!(
            "lab diff: {} and {} are of different experiments",
            old.1, new.1
        )));
    }
    let mut rows: Vec<DiffRow> = new_series
        .iter()
        .filter_map(|new| Some(row(find(&old_series, new)?, new)))
        .collect();
    correct(rows.iter_mut().map(|row| &mut row.comparison).collect());
    let invalid = [old, new]
        .into_iter()
        .filter(|(report, _)| report["valid"] != true);
    let not_valid_because: Vec<String> = invalid
        .map(|(_, file)| format!("{file} says that it is not valid"))
        .collect();
    let only = |these: &[Series], others: &[Series]| {
        let missing = these.iter().filter(|one| find(others, one).is_none());
        missing.map(|one| one.name.clone()).collect()
    };
    Ok(DiffReport {
        kind,
        valid: not_valid_because.is_empty(),
        not_valid_because,
        rows,
        only_old: only(&old_series, &new_series),
        only_new: only(&new_series, &old_series),
        notices: notices(old.0, new.0),
    })
}

fn find<'a>(all: &'a [Series], wanted: &Series) -> Option<&'a Series> {
    all.iter()
        .find(|one| one.name == wanted.name && one.unit == wanted.unit)
}

fn row(old: &Series, new: &Series) -> DiffRow {
    DiffRow {
        name: new.name.clone(),
        unit: new.unit.clone(),
        old_median: median(&old.samples),
        new_median: median(&new.samples),
        comparison: compare(&old.samples, &new.samples),
    }
}

/// Paths in a report of the values that limit a comparison when they differ.
const SAME: [(&str, &str); 9] = [
    ("/load", "load"),
    ("/environment/kernel", "kernel"),
    ("/environment/cpus", "CPUs"),
    ("/environment/cpu_model", "CPU"),
    ("/environment/governor", "governor"),
    (
        "/environment/sched_autogroup_enabled",
        "sched_autogroup_enabled",
    ),
    ("/environment/fuse_uring_enabled", "FUSE over io_uring"),
    ("/environment/programs/erofast", "erofast"),
    ("/environment/image/sha256", "image"),
];

fn notices(old: &Value, new: &Value) -> Vec<String> {
    let text = |report: &Value, path: &str| match report.pointer(path) {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let differs = |(path, name): &(&str, &str)| {
        let (old, new) = (text(old, path), text(new, path));
        (old != new).then(|| format!("{name} differs: {old}, now {new}"))
    };
    SAME.iter().filter_map(differs).collect()
}

impl DiffReport {
    /// The report as JSON, readable.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;
    use serde_json::json;

    fn report(around: f64, kernel: &str) -> Value {
        let sample = |k: u32| {
            json!({"launch_us": around + f64::from(k % 5), "sched_latency_us": 100 + k % 7,
                   "program_blocked_us": 50.0, "program_preempted_us": f64::from(k % 3)})
        };
        let samples: Vec<Value> = (0..20).map(sample).collect();
        json!({"valid": true, "load": "none", "environment": {"kernel": kernel},
               "engines": [{"engine": "kernel", "samples": samples}]})
    }

    #[test]
    fn two_runs_are_compared_by_the_rules_of_one() {
        let (old, new) = (report(1000.0, "6.18"), report(800.0, "6.19"));
        let diff = diff((&old, "old"), (&new, "new")).unwrap();
        let verdicts: Vec<Verdict> = diff.rows.iter().map(|row| row.comparison.verdict).collect();
        assert_eq!(
            verdicts,
            [Verdict::Lower, Verdict::NoDifference, Verdict::NoDifference]
        );
        assert!(diff.rows.iter().all(|row| row.comparison.comparisons == 3));
        assert_eq!(diff.notices, ["kernel differs: 6.18, now 6.19"]);
        crate::schema::check("lab-diff", &serde_json::to_value(&diff).unwrap());
        let table = diff.table();
        assert!(table.contains("kernel, launch time"), "{table}");
        assert!(
            table.lines().all(|line| line.chars().count() <= 100),
            "{table}"
        );
    }

    #[test]
    fn what_is_no_report_or_not_valid_is_said() {
        let good = report(1.0, "6");
        let error = diff((&json!({"files": 1}), "a.json"), (&good, "b.json")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("lab diff: a.json: no report of lab launch")
        );
        let mut bad = good.clone();
        bad["valid"] = json!(false);
        let diff = diff((&good, "a.json"), (&bad, "b.json")).unwrap();
        assert_eq!(diff.not_valid_because, ["b.json says that it is not valid"]);
        assert!(!diff.valid);
    }

    #[test]
    fn an_engine_of_one_report_alone_is_named() {
        let old = report(1000.0, "6");
        let mut new = old.clone();
        new["engines"][0]["engine"] = json!("erofsfuse");
        let diff = diff((&old, "a"), (&new, "b")).unwrap();
        assert!(diff.rows.is_empty());
        assert_eq!(diff.only_new[0], "erofsfuse, launch time");
        assert_eq!(diff.only_old.len(), 3);
    }
}
