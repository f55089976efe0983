//! The report of a suite: a row for each program and each test of a tree.

use serde::{Deserialize, Serialize};

use super::SuiteOptions;
use crate::environment::Environment;
use crate::figure::{Figure, Row};
use crate::launch::LaunchReport;
use crate::read::{ReadReport, ReadResult};
use crate::statistics::{Comparison, Summary, correct};

/// What `lab suite` prints as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SuiteReport {
    /// Requested launches of each program.
    pub iterations: usize,
    /// "fio" or "none": the load while programs are launched.
    pub load: String,
    /// Whether the figures may be relied on.
    pub valid: bool,
    /// If not, why, row by row.
    pub not_valid_because: Vec<String>,
    /// The user stopped the run; the report has the samples until then.
    pub interrupted: bool,
    /// Engines and parts that this machine does not have.
    pub left_out: Vec<String>,
    /// Programs first, then trees.
    pub rows: Vec<SuiteRow>,
    /// Each engine over all rows.
    pub engines: Vec<SuiteEngine>,
    /// Where this ran; its image is that of the first row.
    pub environment: Option<Environment>,
}

/// One program, or one test of a tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SuiteRow {
    /// Label for the table.
    pub name: String,
    /// "launch", or the word of the test: "seq", "rand", "tree", "meta", "list".
    pub test: String,
    /// Of the samples: "us" and "s" are better when smaller, "MB/s" and "ops/s" when larger.
    pub unit: String,
    /// In the order of [`SuiteReport::engines`].
    pub cells: Vec<SuiteCell>,
}

/// One engine in a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SuiteCell {
    /// As requested.
    pub engine: String,
    /// In the order of the run.
    pub samples: Vec<f64>,
    /// None without samples.
    pub median: Option<f64>,
    /// How long it takes, the first engine being 1: of the medians, whatever the unit.
    pub time_ratio: Option<f64>,
    /// Against the first engine; none for the first.
    pub against_first: Option<Comparison>,
}

/// One engine over all rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SuiteEngine {
    /// As requested.
    pub engine: String,
    /// Of the time ratios; 1 for the first engine.
    pub geometric_mean: Option<f64>,
    /// The row with the greatest time ratio.
    pub worst_row: Option<String>,
    /// That ratio.
    pub worst_ratio: Option<f64>,
}

impl SuiteReport {
    pub(super) fn new(options: &SuiteOptions) -> SuiteReport {
        SuiteReport {
            iterations: options.iterations,
            load: options.load.to_string(),
            valid: true,
            not_valid_because: Vec::new(),
            interrupted: false,
            left_out: Vec::new(),
            rows: Vec::new(),
            engines: Vec::new(),
            environment: None,
        }
    }

    pub(super) fn add_launch(&mut self, title: &str, report: LaunchReport) {
        let faults = report.not_valid_because.iter();
        self.not_valid_because
            .extend(faults.map(|fault| format!("{title}: {fault}")));
        self.interrupted |= report.interrupted;
        let cells = report.engines.iter().map(|engine| SuiteCell {
            engine: engine.engine.clone(),
            samples: engine.column(|sample| sample.launch_us),
            median: engine.launch_us.map(|summary| summary.median),
            time_ratio: None,
            against_first: engine
                .against_first
                .as_ref()
                .map(|against| against.launch.clone()),
        });
        self.add_row(title.into(), "launch", "us", cells.collect());
    }

    pub(super) fn add_read(&mut self, title: &str, report: ReadReport) {
        self.interrupted |= report.interrupted;
        if !report.valid {
            self.not_valid_because
                .push(format!("{title}: samples were spoilt or are missing"));
        }
        let first = report.results.first().map(|result| result.engine.clone());
        for result in &report.results {
            if Some(&result.engine) != first.as_ref() {
                continue;
            }
            let same = |other: &&ReadResult| other.title == result.title;
            let cells = report.results.iter().filter(same).map(|cell| SuiteCell {
                engine: cell.engine.clone(),
                samples: cell.samples.clone(),
                median: cell.median,
                time_ratio: None,
                against_first: cell.against_first.clone(),
            });
            let name = format!("{title}, {}", result.title);
            self.add_row(name, &result.test, &result.unit, cells.collect());
        }
    }

    fn add_row(&mut self, name: String, test: &str, unit: &str, mut cells: Vec<SuiteCell>) {
        let base = cells.first().and_then(|cell| cell.median);
        for cell in &mut cells {
            cell.time_ratio = cell
                .median
                .zip(base)
                .map(|(median, base)| match unit {
                    "us" | "s" => median / base,
                    _ => base / median,
                })
                .filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        }
        self.rows.push(SuiteRow {
            name,
            test: test.into(),
            unit: unit.into(),
            cells,
        });
    }

    /// Every row.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let row = |cell: &SuiteCell| Row {
            name: cell.engine.clone(),
            samples: cell.samples.clone(),
            against_first: cell.against_first.clone(),
        };
        let figure = |of: &SuiteRow| Figure {
            name: of.name.clone(),
            of: "",
            unit: of.unit.clone(),
            rows: of.cells.iter().map(row).collect(),
        };
        self.rows.iter().map(figure).collect()
    }

    /// The figures over all rows.
    pub(super) fn finish(&mut self) {
        if self.interrupted {
            self.not_valid_because
                .push("the run was interrupted".into());
        }
        self.environment = self.environment.take().map(Environment::ended);
        self.valid = self.not_valid_because.is_empty();
        let cells = self.rows.iter_mut().flat_map(|row| &mut row.cells);
        correct(
            cells
                .filter_map(|cell| cell.against_first.as_mut())
                .collect(),
        );
        let names: Vec<String> = self
            .rows
            .first()
            .map(|row| row.cells.iter().map(|cell| cell.engine.clone()).collect())
            .unwrap_or_default();
        let engines = names.into_iter().enumerate();
        self.engines = engines
            .map(|(number, engine)| self.overall(number, engine))
            .collect();
    }

    fn overall(&self, number: usize, engine: String) -> SuiteEngine {
        let ratios: Vec<(f64, &str)> = self
            .rows
            .iter()
            .filter_map(|row| Some((row.cells.get(number)?.time_ratio?, row.name.as_str())))
            .collect();
        let logs: Vec<f64> = ratios.iter().map(|(ratio, _)| ratio.ln()).collect();
        let worst = ratios.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        SuiteEngine {
            engine,
            geometric_mean: Summary::of(&logs).map(|summary| summary.average.exp()),
            worst_row: worst.map(|(_, row)| (*row).to_owned()),
            worst_ratio: worst.map(|(ratio, _)| *ratio),
        }
    }

    /// The report as JSON, readable.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(engine: &str, median: f64) -> SuiteCell {
        SuiteCell {
            engine: engine.into(),
            samples: vec![median],
            median: Some(median),
            time_ratio: None,
            against_first: None,
        }
    }

    #[test]
    fn ratios_are_of_times_whatever_the_unit() {
        let mut report = SuiteReport::new(&SuiteOptions::default());
        let cells = |a, b| vec![cell("kernel", a), cell("other", b)];
        report.add_row("launch".into(), "launch", "us", cells(100.0, 200.0));
        report.add_row("stream".into(), "seq", "MB/s", cells(500.0, 1000.0));
        report.add_row("list".into(), "list", "s", cells(1.0, 1.0));
        report.finish();
        let ratios: Vec<f64> = report
            .rows
            .iter()
            .filter_map(|row| row.cells[1].time_ratio)
            .collect();
        assert_eq!(ratios, [2.0, 0.5, 1.0]);
        let other = &report.engines[1];
        assert!((other.geometric_mean.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(
            (other.worst_row.as_deref(), other.worst_ratio),
            (Some("launch"), Some(2.0))
        );
        assert_eq!(report.engines[0].geometric_mean, Some(1.0));
        crate::schema::check("lab-suite", &serde_json::to_value(&report).unwrap());
        let table = report.table();
        assert!(table.contains("1.000 s"), "{table}");
        assert!(table.contains("geometric mean"), "{table}");
        assert!(
            table.lines().all(|line| line.chars().count() <= 100),
            "{table}"
        );
    }
}
