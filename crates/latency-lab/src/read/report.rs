//! The report of a read experiment, as a table and as JSON, which is described in docs/schemas.

use serde::{Deserialize, Serialize};

use super::cell::{Cell, ImageState};
use super::job::Measured;
use crate::environment::Environment;
use crate::figure::{Figure, Row, amount, count, label, medians, shown};
use crate::findings::Findings;
use crate::schedule::{Gathered, Kept, Plan};
use crate::statistics::{Comparison, Summary, compare_rounds, correct, in_rounds, median};
use crate::table::Table;

/// The results of one test with one engine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ReadResult {
    /// The engine, as requested.
    pub engine: String,
    /// Number of this engine among those of the same name, counted from 1.
    #[serde(default)]
    pub number: usize,
    /// "seq", "rand", "tree", "meta" or "list".
    pub test: String,
    /// Label for the table.
    pub title: String,
    /// Number of threads that read.
    pub readers: usize,
    /// Number of bytes per read.
    pub block: usize,
    /// Where the image was: in the page cache or on the disk.
    pub image: ImageState,
    /// Unit of the samples: "MB/s" and "ops/s" are better when larger, "s" when smaller.
    pub unit: String,
    /// Samples in the order of the run.
    pub samples: Vec<f64>,
    /// Median; none without samples.
    pub median: Option<f64>,
    /// Smallest sample.
    pub minimum: Option<f64>,
    /// Largest sample.
    pub maximum: Option<f64>,
    /// The median, over all samples, of the 99th percentile of the latency of single reads; only
    /// for random tests.
    pub p99_us: Option<f64>,
    /// Comparison with the first engine; none for the first.
    pub against_first: Option<Comparison>,
    /// The rounds that the samples were measured in; reports from early versions lack them.
    #[serde(default)]
    pub rounds: Vec<usize>,
    /// Number of samples that were discarded and measured again.
    pub thrown_away: usize,
    /// Number of `samples` that were spoilt and could no longer be repeated.
    pub spoilt: usize,
    /// What spoilt the first spoilt sample.
    pub spoilt_by: Option<String>,
}

/// The report of `lab read`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadReport {
    /// Number of samples requested per test.
    pub iterations: usize,
    /// Whether the figures may be relied on.
    pub valid: bool,
    /// Whether the user stopped the run.
    pub interrupted: bool,
    /// The environment of the run.
    pub environment: Environment,
    /// Engines of the default list that are not available on this machine.
    pub left_out: Vec<String>,
    /// The results of every test with every engine.
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
    let cells = cells.iter().zip(&gathered.kept).zip(&gathered.thrown_away);
    let mut report = ReadReport {
        iterations: plan.iterations,
        valid: gathered.is_whole(),
        interrupted: gathered.interrupted,
        environment,
        left_out,
        results: cells
            .map(|((cell, kept), thrown)| result(cell, kept, thrown.len()))
            .collect(),
    };
    report.compute();
    report.valid &= report.is_whole();
    report
}

fn result(cell: &Cell, kept: &[Kept<Measured>], thrown_away: usize) -> ReadResult {
    let tails: Vec<f64> = kept.iter().filter_map(|kept| kept.sample.p99_us).collect();
    ReadResult {
        engine: cell.engine.to_string(),
        test: cell.test.word().into(),
        title: cell.test.title(),
        readers: cell.test.readers(),
        block: cell.test.block(),
        image: cell.image,
        unit: cell.test.unit().into(),
        p99_us: median(&tails),
        rounds: kept.iter().map(|kept| kept.iteration).collect(),
        thrown_away,
        spoilt: kept.iter().filter(|kept| kept.spoilt.is_some()).count(),
        spoilt_by: kept.iter().find_map(|kept| kept.spoilt.clone()),
        samples: kept.iter().map(|kept| kept.sample.value).collect(),
        ..ReadResult::default()
    }
}

impl ReadResult {
    /// Computes everything that follows from the samples, and compares the samples with those of
    /// the first engine.
    fn compute(&mut self, first: Option<&ReadResult>) {
        let summary = Summary::of(&self.samples);
        self.median = summary.map(|summary| summary.median);
        self.minimum = summary.map(|summary| summary.minimum);
        self.maximum = summary.map(|summary| summary.maximum);
        self.against_first =
            first.map(|first| compare_rounds(&first.in_rounds(), &self.in_rounds()));
    }

    fn in_rounds(&self) -> Vec<(usize, f64)> {
        in_rounds(&self.rounds, &self.samples)
    }

    /// The engine's name, with its number unless it is the first one of this name.
    pub(crate) fn label(&self) -> String {
        label(&self.engine, self.number)
    }

    pub(crate) fn name(&self) -> String {
        format!("{}, image {}", self.title, self.image.word())
    }

    /// Whether both results are from the same test with the image in the same state.
    pub(crate) fn is_beside(&self, other: &ReadResult) -> bool {
        self.title == other.title && self.image == other.image
    }
}

impl ReadReport {
    /// Numbers the engines, and computes all figures and verdicts from the samples.
    pub(crate) fn compute(&mut self) {
        for at in 0..self.results.len() {
            let (before, rest) = self.results.split_at_mut(at);
            let same: Vec<&ReadResult> =
                before.iter().filter(|it| it.is_beside(&rest[0])).collect();
            let of_name = same.iter().filter(|it| it.engine == rest[0].engine);
            if rest[0].number == 0 {
                rest[0].number = 1 + of_name.count();
            }
            rest[0].compute(same.first().copied());
        }
        let comparisons = self.results.iter_mut();
        correct(
            comparisons
                .filter_map(|it| it.against_first.as_mut())
                .collect(),
        );
    }

    /// Whether every test has all its samples and none is spoilt.
    pub(crate) fn is_whole(&self) -> bool {
        let whole = |it: &ReadResult| it.spoilt == 0 && it.samples.len() == self.iterations;
        !self.interrupted
            && self.results.iter().all(whole)
            && self.environment.steal_fault(None).is_none()
            && self.environment.image.changed.is_none()
    }

    pub(crate) fn findings(&self) -> Findings {
        let figures = shown(self.figures(), self.valid);
        Findings {
            kind: "read",
            title: "Reads by engine",
            about: format!(
                "{} of each test, interleaved, each from a fresh mount",
                count(self.iterations, "sample")
            ),
            environment: Some(self.environment.clone()),
            faults: self.faults(),
            summary: self.summary(&figures),
            legend: format!(
                "{}\nMB/s and ops/s: more is better; s: less is better.\n\
                 p99: 99 % of single reads took less.\n",
                medians(&figures, "engine")
            ),
            figures,
            notes: self
                .left_out
                .iter()
                .map(|line| format!("left out: {line}"))
                .collect(),
            ..Findings::default()
        }
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        let spoilt: usize = self.results.iter().map(|result| result.spoilt).sum();
        let why = self.results.iter().find_map(|it| it.spoilt_by.as_deref());
        let changed = self.environment.image.changed.clone();
        let fault = match (self.valid, self.interrupted) {
            (true, _) => None,
            (_, true) => Some("interrupted".into()),
            _ if spoilt == 0 => self
                .environment
                .steal_fault(None)
                .or_else(|| changed.is_none().then(|| "incomplete".into())),
            _ => Some(format!(
                "samples that were spoilt: {spoilt} ({})",
                why.unwrap_or("unknown")
            )),
        };
        fault.into_iter().chain(changed).collect()
    }

    /// One figure for each test and state of the image.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let mut figures: Vec<Figure> = Vec::new();
        for result in self.results.iter().filter(|result| result.median.is_some()) {
            let name = result.name();
            let row = Row {
                name: result.label(),
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

    fn summary(&self, figures: &[Figure]) -> Vec<Table> {
        let mut tables: Vec<Table> = figures.iter().map(Figure::claims).collect();
        for table in &mut tables {
            let of = self
                .results
                .iter()
                .filter(|it| it.median.is_some() && it.name() == table.title);
            for (row, result) in table.rows.iter_mut().zip(of) {
                let tail = result
                    .p99_us
                    .map(|p99| format!("p99 {}", amount(p99, "us")));
                row.1.extend(tail);
            }
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Report;

    fn result(title: &str, median: Option<f64>) -> ReadResult {
        ReadResult {
            engine: "kernel".into(),
            title: title.into(),
            unit: "MB/s".into(),
            samples: median.into_iter().collect(),
            median,
            ..ReadResult::default()
        }
    }

    #[test]
    fn tests_that_an_interrupted_run_did_not_reach_are_not_in_the_table() {
        let mut report = ReadReport {
            iterations: 1,
            valid: false,
            interrupted: true,
            environment: Environment::default(),
            left_out: Vec::new(),
            results: vec![result("reached", Some(7.0)), result("not reached", None)],
        };
        let text = |report: &ReadReport| Report::Read(Box::new(report.clone())).table();
        let table = text(&report);
        assert!(table.contains("NOT VALID: interrupted"), "{table}");
        assert!(
            table.contains("reached, image warm\n  kernel     7 MB/s"),
            "{table}"
        );
        assert!(!table.contains("not reached"), "{table}");
        report.results.remove(0);
        assert!(!text(&report).contains("image warm"));
    }
}
