//! The samples of a report, by name, whichever experiment made it.

use serde_json::Value;

use crate::{LabError, Result};

/// Which experiment made a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `lab launch`, or `lab kernel`.
    Launch,
    /// `lab read`.
    Read,
    /// `lab suite`.
    Suite,
}

/// Samples of one kind and unit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) samples: Vec<f64>,
}

/// Figures of a launch that are compared: a title, and the fields whose sum it is.
const FIGURES: [(&str, &[&str]); 3] = [
    ("launch time", &["launch_us"]),
    ("scheduling latency", &["sched_latency_us"]),
    (
        "whole path",
        &["program_blocked_us", "program_preempted_us"],
    ),
];

/// The experiment of a report and its samples. `file` is for the message.
pub(super) fn series(report: &Value, file: &str) -> Result<(Kind, Vec<Series>)> {
    let found = if let Some(rows) = report["rows"].as_array() {
        (Kind::Suite, rows.iter().flat_map(suite).collect())
    } else if let Some(results) = report["results"].as_array() {
        (Kind::Read, results.iter().filter_map(read).collect())
    } else if let Some(engines) = report["engines"].as_array() {
        (Kind::Launch, engines.iter().flat_map(launch).collect())
    } else {
        (Kind::Launch, Vec::new())
    };
    match found.1.is_empty() {
        false => Ok(found),
        true => Err(LabError::Usage(format!(
            "lab diff: {file}: no report of lab launch, lab read or lab suite (made with --json)"
        ))),
    }
}

fn numbers(values: &Value) -> Option<Vec<f64>> {
    values.as_array()?.iter().map(Value::as_f64).collect()
}

fn launch(engine: &Value) -> Vec<Series> {
    let name = engine["engine"].as_str().unwrap_or_default();
    let none = Vec::new();
    let samples = engine["samples"].as_array().unwrap_or(&none);
    let figure = |(title, fields): &(&str, &[&str])| {
        let sum = |sample: &Value| fields.iter().map(|field| sample[field].as_f64()).sum();
        let values: Option<Vec<f64>> = samples.iter().map(sum).collect();
        Some(Series {
            name: format!("{name}, {title}"),
            unit: "us".into(),
            samples: values.filter(|values| !values.is_empty())?,
        })
    };
    FIGURES.iter().filter_map(figure).collect()
}

fn read(result: &Value) -> Option<Series> {
    let text = |field: &str| result[field].as_str();
    Some(Series {
        name: format!(
            "{}, {}, image {}",
            text("engine")?,
            text("title")?,
            text("image")?
        ),
        unit: text("unit")?.into(),
        samples: numbers(&result["samples"])?,
    })
}

fn suite(row: &Value) -> Vec<Series> {
    let none = Vec::new();
    let cells = row["cells"].as_array().unwrap_or(&none).iter();
    let series = |cell: &Value| {
        Some(Series {
            name: format!("{}, {}", row["name"].as_str()?, cell["engine"].as_str()?),
            unit: row["unit"].as_str()?.into(),
            samples: numbers(&cell["samples"])?,
        })
    };
    cells.filter_map(series).collect()
}
