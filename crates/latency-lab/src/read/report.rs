//! The report of a read experiment: the contract's JSON and a table.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::cell::{Cell, ImageState};
use super::job::Measured;
use crate::environment::Environment;
use crate::figure::{Figure, Row, difference};
use crate::schedule::{Gathered, Kept, Plan};
use crate::statistics::{Comparison, Summary, compare_rounds, correct, median};

/// One test of one engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadResult {
    /// As requested.
    pub engine: String,
    /// "seq", "rand", "tree", "meta" or "list".
    pub test: String,
    /// Label for the table.
    pub title: String,
    /// Threads that read.
    pub readers: usize,
    /// Bytes of one read.
    pub block: usize,
    /// Where the image was.
    pub image: ImageState,
    /// Of the samples: "MB/s" and "ops/s" are better when larger, "s" when smaller.
    pub unit: String,
    /// In the order of the run.
    pub samples: Vec<f64>,
    /// None without samples.
    pub median: Option<f64>,
    /// Smallest sample.
    pub minimum: Option<f64>,
    /// Largest sample.
    pub maximum: Option<f64>,
    /// Median of the samples' 99th percentiles of single reads; random tests only.
    pub p99_us: Option<f64>,
    /// Against the first engine; none for the first.
    pub against_first: Option<Comparison>,
    /// The samples with the rounds they were measured in.
    #[serde(skip)]
    pub rounds: Vec<(usize, f64)>,
    /// Samples discarded and measured again.
    pub thrown_away: usize,
    /// Samples among these that were spoilt and could not be repeated any more.
    pub spoilt: usize,
    /// What spoilt the first of them.
    pub spoilt_by: Option<String>,
}

/// The report of `lab read`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadReport {
    /// Requested samples of each test.
    pub iterations: usize,
    /// Whether the figures may be relied on.
    pub valid: bool,
    /// The user stopped the run.
    pub interrupted: bool,
    /// Where this ran.
    pub environment: Environment,
    /// Engines of the default list that this machine does not have.
    pub left_out: Vec<String>,
    /// Every test of every engine.
    pub results: Vec<ReadResult>,
}

pub(super) fn build(
    plan: &Plan,
    environment: Environment,
    cells: &[Cell],
    gathered: Gathered<Measured>,
    left_out: Vec<String>,
) -> ReadReport {
    let environment = environment.ended();
    let valid = gathered.is_whole() && environment.steal_fault(None).is_none();
    let mut results: Vec<ReadResult> = Vec::new();
    for ((cell, kept), thrown) in cells.iter().zip(&gathered.kept).zip(&gathered.thrown_away) {
        let twin = results.iter().find(|result| {
            (
                result.test.as_str(),
                result.readers,
                result.block,
                result.image,
            ) == (
                cell.test.word(),
                cell.test.readers(),
                cell.test.block(),
                cell.image,
            )
        });
        let result = result(cell, kept, thrown.len(), twin);
        results.push(result);
    }
    let comparisons = results.iter_mut();
    correct(
        comparisons
            .filter_map(|result| result.against_first.as_mut())
            .collect(),
    );
    ReadReport {
        iterations: plan.iterations,
        valid,
        interrupted: gathered.interrupted,
        environment,
        left_out,
        results,
    }
}

fn result(
    cell: &Cell,
    kept: &[Kept<Measured>],
    thrown_away: usize,
    first: Option<&ReadResult>,
) -> ReadResult {
    let samples: Vec<f64> = kept.iter().map(|kept| kept.sample.value).collect();
    let in_round = |kept: &Kept<Measured>| (kept.iteration, kept.sample.value);
    let rounds: Vec<(usize, f64)> = kept.iter().map(in_round).collect();
    let tails: Vec<f64> = kept.iter().filter_map(|kept| kept.sample.p99_us).collect();
    let summary = Summary::of(&samples);
    ReadResult {
        engine: cell.engine.to_string(),
        test: cell.test.word().into(),
        title: cell.test.title(),
        readers: cell.test.readers(),
        block: cell.test.block(),
        image: cell.image,
        unit: cell.test.unit().into(),
        median: summary.map(|summary| summary.median),
        minimum: summary.map(|summary| summary.minimum),
        maximum: summary.map(|summary| summary.maximum),
        p99_us: median(&tails),
        against_first: first.map(|first| compare_rounds(&first.rounds, &rounds)),
        rounds,
        thrown_away,
        spoilt: kept.iter().filter(|kept| kept.spoilt.is_some()).count(),
        spoilt_by: kept.iter().find_map(|kept| kept.spoilt.clone()),
        samples,
    }
}

impl ReadResult {
    /// A run that was interrupted has none of the later tests.
    fn has_figures(&self) -> bool {
        self.median.is_some()
    }
}

impl ReadReport {
    /// Every test with the image in one state.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> = Vec::new();
        for result in self.results.iter().filter(|result| result.has_figures()) {
            let name = format!("{}, image {}", result.title, result.image.word());
            let row = Row {
                name: result.engine.clone(),
                samples: result.samples.clone(),
                against_first: result.against_first.clone(),
            };
            match figures.iter_mut().find(|figure| figure.name == name) {
                Some(figure) => figure.rows.push(row),
                None => figures.push(Figure {
                    name,
                    of: "",
                    unit: result.unit.clone(),
                    rows: vec![row],
                }),
            }
        }
        figures
    }

    /// The JSON of the contract, readable.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// A line that stays with the table.
    fn validity(&self) -> String {
        let spoilt: usize = self.results.iter().map(|result| result.spoilt).sum();
        match (self.valid, self.interrupted) {
            (true, _) => "valid".into(),
            (_, true) => "NOT VALID: interrupted".into(),
            _ if spoilt == 0 => {
                let stolen = self.environment.steal_fault(None);
                format!("NOT VALID: {}", stolen.unwrap_or_default())
            }
            _ => {
                let mut reasons = self.results.iter().filter_map(|it| it.spoilt_by.as_deref());
                let why = reasons.next().unwrap_or("unknown");
                format!("NOT VALID: samples that were spoilt: {spoilt} ({why})")
            }
        }
    }

    /// Medians with their ranges, engines across.
    pub fn table(&self) -> String {
        let mut out = format!(
            "Samples of each test: {}, interleaved, a fresh mount for each; median (smallest to largest)\n\
             {}\n{}\n",
            self.iterations,
            self.environment.line(),
            self.validity()
        );
        for (image, title) in [
            (ImageState::Warm, "image warm"),
            (ImageState::Cold, "image cold"),
        ] {
            let results: Vec<&ReadResult> = self
                .results
                .iter()
                .filter(|result| result.image == image && result.has_figures())
                .collect();
            if !results.is_empty() {
                let _ = writeln!(out, "\n{title}");
                rows(&mut out, &results);
            }
        }
        for line in &self.left_out {
            let _ = writeln!(out, "left out: {line}");
        }
        out + "\nMB/s and ops/s: more is better; s: less is better. A percentage in parentheses is no claim (at 1 in\n\
               100 for all comparisons together). p99: 99 of 100 single reads took less.\n"
    }
}

fn rows(out: &mut String, results: &[&ReadResult]) {
    let mut title = "";
    for result in results {
        if result.title != title {
            title = &result.title;
            let _ = writeln!(out, "  {title} ({})", result.unit);
        }
        let figure =
            |value: Option<f64>| value.map_or("-".into(), |value| figure(value, &result.unit));
        let mut line = format!(
            "    {:<28} {:>9} ({} to {})",
            result.engine,
            figure(result.median),
            figure(result.minimum),
            figure(result.maximum)
        );
        if let Some(p99) = result.p99_us {
            let _ = write!(line, "  p99 {p99:.0} us");
        }
        if let Some(comparison) = &result.against_first {
            let _ = write!(line, "  {}", difference(comparison));
        }
        let _ = writeln!(out, "{line}");
    }
}

fn figure(value: f64, unit: &str) -> String {
    match unit {
        "s" => format!("{value:.3}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn result(title: &str, median: Option<f64>) -> ReadResult {
        ReadResult {
            engine: "kernel".into(),
            test: "seq".into(),
            title: title.into(),
            readers: 1,
            block: 4096,
            image: ImageState::Warm,
            unit: "MB/s".into(),
            samples: median.into_iter().collect(),
            median,
            minimum: median,
            maximum: median,
            p99_us: None,
            against_first: None,
            rounds: Vec::new(),
            thrown_away: 0,
            spoilt: 0,
            spoilt_by: None,
        }
    }

    #[test]
    fn tests_that_an_interrupted_run_did_not_reach_are_not_in_the_table() {
        let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let mut report = ReadReport {
            iterations: 1,
            valid: false,
            interrupted: true,
            environment: Environment::capture(&image, Path::new("/bin/true")).unwrap(),
            left_out: Vec::new(),
            results: vec![result("reached", Some(7.0)), result("not reached", None)],
        };
        let table = report.table();
        assert!(table.contains("NOT VALID: interrupted"), "{table}");
        assert!(table.contains("reached (MB/s)"), "{table}");
        assert!(!table.contains("not reached"), "{table}");
        report.results.remove(0);
        assert!(!report.table().contains("image warm"));
    }
}
