//! The report of a suite: a row for each program and each test of a tree.

use serde::{Deserialize, Serialize};

use super::SuiteOptions;
use crate::environment::Environment;
use crate::figure::{Figure, Row, amount, count, label, shown, stored};
use crate::findings::Findings;
use crate::launch::{EngineReport, LaunchReport};
use crate::read::ReadReport;
use crate::statistics::{Comparison, Summary, compare_rounds, correct, in_rounds, median};
use crate::table::Table;

/// Maximum number of times that each test reads a tree: as many as a claim needs if four engines
/// are compared in all rows.
pub(super) const MOST_READS: usize = 14;

/// The JSON output of `lab suite`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SuiteReport {
    /// Number of launches that were requested for each program.
    pub iterations: usize,
    /// "fio" or "none": the load while programs are launched.
    pub load: String,
    /// Whether the figures may be relied on.
    pub valid: bool,
    /// Why the run is not valid, row by row; empty if it is valid.
    pub not_valid_because: Vec<String>,
    /// Whether the user stopped the run; the report then has the samples so far.
    pub interrupted: bool,
    /// Engines and parts that are not available on this machine.
    pub left_out: Vec<String>,
    /// The rows: programs first, then trees.
    pub rows: Vec<SuiteRow>,
    /// For each engine, its figures over all rows.
    pub engines: Vec<SuiteEngine>,
    /// The environment of the run; its image is that of the first row.
    pub environment: Option<Environment>,
}

/// A row: one program, or one test of a tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SuiteRow {
    /// Label for the table.
    pub name: String,
    /// "launch", or the name of the test: "seq", "rand", "tree", "meta", "list".
    pub test: String,
    /// Unit of the samples: "us" and "s" are better when smaller, "MB/s" and "ops/s" when larger.
    pub unit: String,
    /// The engines' cells, in the order of [`SuiteReport::engines`].
    pub cells: Vec<SuiteCell>,
}

/// The samples and figures of one engine in a row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SuiteCell {
    /// The engine, as requested.
    pub engine: String,
    /// Number of this engine among those of the same name, counted from 1.
    #[serde(default)]
    pub number: usize,
    /// Samples in the order of the run.
    pub samples: Vec<f64>,
    /// The rounds that the samples were measured in; reports from early versions lack them.
    #[serde(default)]
    pub rounds: Vec<usize>,
    /// Median; none without samples.
    pub median: Option<f64>,
    /// How long the engine takes relative to the first engine, even if the unit is a rate; computed
    /// from the shift of `against_first`.
    pub time_ratio: Option<f64>,
    /// Comparison with the first engine; none for the first.
    pub against_first: Option<Comparison>,
}

/// The figures of one engine over all rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SuiteEngine {
    /// The engine, as requested.
    pub engine: String,
    /// Number of this engine among those of the same name, counted from 1.
    #[serde(default)]
    pub number: usize,
    /// Geometric mean of the time ratios; 1 for the first engine.
    pub geometric_mean: Option<f64>,
    /// The name of the row with the greatest time ratio.
    pub worst_row: Option<String>,
    /// The time ratio in that row.
    pub worst_ratio: Option<f64>,
}

impl SuiteReport {
    pub(super) fn new(options: &SuiteOptions) -> SuiteReport {
        SuiteReport {
            iterations: options.iterations,
            load: options.load.to_string(),
            ..SuiteReport::default()
        }
    }

    pub(super) fn add_launch(&mut self, title: &str, report: LaunchReport) {
        let faults = report.not_valid_because.iter();
        self.not_valid_because
            .extend(faults.map(|fault| format!("{title}: {fault}")));
        self.interrupted |= report.interrupted;
        let cell = |engine: &EngineReport| {
            let rounds = engine.samples.iter().map(|sample| sample.iteration);
            let times = engine.column(|sample| sample.launch_us);
            SuiteCell::new(&engine.engine, engine.number, rounds.collect(), times)
        };
        self.rows.push(SuiteRow {
            name: title.into(),
            test: "launch".into(),
            unit: "us".into(),
            cells: report.engines.iter().map(cell).collect(),
        });
    }

    pub(super) fn add_read(&mut self, title: &str, report: ReadReport) {
        self.interrupted |= report.interrupted;
        let faults = report.faults().into_iter();
        self.not_valid_because
            .extend(faults.map(|fault| format!("{title}: {fault}")));
        for result in report.results.into_iter().filter(|it| it.median.is_some()) {
            let name = format!("{title}, {}", result.title);
            let (number, rounds) = (result.number, result.rounds);
            let cell = SuiteCell::new(&result.engine, number, rounds, result.samples);
            match self.rows.iter_mut().find(|row| row.name == name) {
                Some(row) => row.cells.push(cell),
                None => self.rows.push(SuiteRow {
                    name,
                    test: result.test,
                    unit: result.unit,
                    cells: vec![cell],
                }),
            }
        }
    }

    /// Computes the figures over all rows.
    pub(super) fn finish(&mut self) {
        if self.interrupted {
            self.not_valid_because
                .push("the run was interrupted".into());
        }
        self.environment = self.environment.take().map(Environment::ended);
        self.valid = self.not_valid_because.is_empty();
        self.compute();
    }

    /// Numbers the engines, and computes all figures and verdicts from the samples.
    pub(crate) fn compute(&mut self) {
        self.align();
        self.rows.iter_mut().for_each(SuiteRow::compare);
        let cells = self.rows.iter_mut().flat_map(|row| &mut row.cells);
        correct(
            cells
                .filter_map(|cell| cell.against_first.as_mut())
                .collect(),
        );
        self.rows.iter_mut().for_each(SuiteRow::take_ratios);
        let first = self.rows.first().map_or(&[][..], |row| &row.cells);
        let engines = first.iter().enumerate();
        self.engines = engines.map(|(at, cell)| self.overall(at, cell)).collect();
    }

    /// Gives each row a cell for each engine, in the same order. A cell belongs to the engine that
    /// it names, whatever its place in the row, and a row may lack cells.
    fn align(&mut self) {
        fn name((engine, number): (&str, usize)) -> (String, usize) {
            (engine.to_owned(), number)
        }
        self.rows.iter_mut().for_each(SuiteRow::number);
        let engines = || self.engines.iter().map(|it| it.engine.as_str());
        let numbers = stored(engines().zip(self.engines.iter().map(|it| it.number)));
        let cells = self.rows.iter().flat_map(|row| &row.cells);
        let of_rows = cells.map(|cell| (cell.engine.as_str(), cell.number));
        let mut names: Vec<(String, usize)> = Vec::new();
        for name in engines().zip(numbers).chain(of_rows).map(name) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        self.rows.iter_mut().for_each(|row| row.align(&names));
    }

    fn overall(&self, at: usize, cell: &SuiteCell) -> SuiteEngine {
        let ratios: Vec<(f64, &str)> = self
            .rows
            .iter()
            .filter_map(|row| Some((row.cells.get(at)?.time_ratio?, row.name.as_str())))
            .collect();
        let logs: Vec<f64> = ratios.iter().map(|(ratio, _)| ratio.ln()).collect();
        let worst = ratios.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        SuiteEngine {
            engine: cell.engine.clone(),
            number: cell.number,
            geometric_mean: Summary::of(&logs).map(|summary| summary.average.exp()),
            worst_row: worst.map(|(_, row)| (*row).to_owned()),
            worst_ratio: worst.map(|(ratio, _)| *ratio),
        }
    }
}

impl SuiteReport {
    pub(crate) fn findings(&self) -> Findings {
        Findings {
            kind: "suite",
            title: "Programs and trees by engine",
            about: format!(
                "{} of each program, load {}; trees read without load, at most {MOST_READS} times",
                count(self.iterations, "launch"),
                self.load
            ),
            environment: self.environment.clone(),
            faults: self.not_valid_because.clone(),
            figures: self.figures(),
            summary: self.summary(),
            legend: "[1]: medians, in the unit of the row. The others: time relative to [1],\n\
         by the shift (Hodges-Lehmann); less is better, even where the unit is a rate.\n\
         Inconclusive ones are in parentheses.\n"
                .into(),
            notes: self.notes(),
            ..Findings::default()
        }
    }

    /// One figure per row.
    fn figures(&self) -> Vec<Figure> {
        let row = |cell: &SuiteCell| Row {
            name: label(&cell.engine, cell.number),
            samples: cell.samples.clone(),
            against_first: cell.against_first.clone(),
        };
        let figure = |of: &SuiteRow| Figure {
            name: of.name.clone(),
            of: "",
            unit: of.unit.clone(),
            rows: of.cells.iter().map(row).collect(),
        };
        shown(self.rows.iter().map(figure).collect(), self.valid)
    }

    /// A table of the first engine's medians in their units, and of the other engines' times
    /// relative to the first engine's.
    fn summary(&self) -> Vec<Table> {
        let numbers: Vec<String> = (1..=self.engines.len())
            .map(|it| format!("[{it}]"))
            .collect();
        let names = numbers.iter().zip(&self.engines);
        let names = names.map(|(number, it)| (number.clone(), label(&it.engine, it.number)));
        let names = Table::words("", names.collect()).coloured();
        let mut table = Table {
            heads: numbers,
            ..Table::default()
        };
        for row in &self.rows {
            let cells = row.cells.iter().enumerate();
            table.add(
                &row.name,
                cells.map(|(number, cell)| row.text(number, cell, self.valid)),
            );
        }
        let of = |ratio: fn(&SuiteEngine) -> Option<f64>| {
            let text = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
            self.engines.iter().map(ratio).map(text).collect::<Vec<_>>()
        };
        table.add("geometric mean", of(|engine| engine.geometric_mean));
        table.add("worst row", of(|engine| engine.worst_ratio));
        vec![names, table]
    }

    fn notes(&self) -> Vec<String> {
        let worst = (1..)
            .zip(&self.engines)
            .skip(1)
            .filter_map(|(number, engine)| {
                let row = engine.worst_row.as_ref()?;
                Some(format!("worst row of [{number}]: {row}"))
            });
        let left_out = self.left_out.iter().map(|line| format!("left out: {line}"));
        worst.chain(left_out).collect()
    }
}

impl SuiteCell {
    /// Creates a cell that contains only samples; [`SuiteReport::compute`] adds the figures.
    fn new(engine: &str, number: usize, rounds: Vec<usize>, samples: Vec<f64>) -> SuiteCell {
        SuiteCell {
            engine: engine.into(),
            number,
            samples,
            rounds,
            median: None,
            time_ratio: None,
            against_first: None,
        }
    }

    fn in_rounds(&self) -> Vec<(usize, f64)> {
        in_rounds(&self.rounds, &self.samples)
    }
}

impl SuiteRow {
    /// Numbers the engines that have no number.
    fn number(&mut self) {
        let numbers = stored(self.cells.iter().map(|it| (it.engine.as_str(), it.number)));
        for (cell, number) in self.cells.iter_mut().zip(numbers) {
            cell.number = number;
        }
    }

    /// Puts the cells of these engines first, one for each engine and in this order; any other
    /// cells follow.
    fn align(&mut self, names: &[(String, usize)]) {
        let mut cells = std::mem::take(&mut self.cells);
        for (engine, number) in names {
            let is_it = |cell: &SuiteCell| (&cell.engine, &cell.number) == (engine, number);
            let cell = match cells.iter().position(is_it) {
                Some(at) => cells.remove(at),
                None => SuiteCell::new(engine, *number, Vec::new(), Vec::new()),
            };
            self.cells.push(cell);
        }
        self.cells.extend(cells);
    }

    /// Compares every engine with the first one, if both have samples.
    fn compare(&mut self) {
        let first = self
            .cells
            .first()
            .map(SuiteCell::in_rounds)
            .unwrap_or_default();
        for (at, cell) in self.cells.iter_mut().enumerate() {
            cell.median = median(&cell.samples);
            let known = at > 0 && !first.is_empty() && !cell.samples.is_empty();
            cell.against_first = known.then(|| compare_rounds(&first, &cell.in_rounds()));
        }
    }

    fn take_ratios(&mut self) {
        for at in 0..self.cells.len() {
            self.cells[at].time_ratio = self.ratio(at);
        }
    }

    fn text(&self, number: usize, cell: &SuiteCell, valid: bool) -> String {
        let claims = valid && cell.against_first.as_ref().is_some_and(Comparison::claims);
        match (number, cell.median, cell.time_ratio) {
            (0, Some(median), _) => amount(median, &self.unit),
            (1.., _, Some(ratio)) if claims => format!("{ratio:.2}"),
            (1.., _, Some(ratio)) => format!("({ratio:.2})"),
            _ => "-".into(),
        }
    }

    /// How long the engine at index `at` takes relative to the first engine.
    fn ratio(&self, at: usize) -> Option<f64> {
        let (cell, first) = (&self.cells[at], self.cells.first()?.median?);
        let times = match &cell.against_first {
            None => cell.median? / first,
            Some(shift) => match (shift.difference_percent, shift.difference) {
                (Some(percent), _) => 1.0 + percent / 100.0,
                (None, shift) => (first + shift?) / first,
            },
        };
        let ratio = match self.unit.as_str() {
            "us" | "s" => times,
            _ => 1.0 / times,
        };
        Some(ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Report;

    /// A row of two engines.
    fn row(name: &str, unit: &str, first: &[f64], second: &[f64]) -> SuiteRow {
        let cell =
            |name: &str, samples: &[f64]| SuiteCell::new(name, 0, Vec::new(), samples.into());
        SuiteRow {
            name: name.into(),
            test: "launch".into(),
            unit: unit.into(),
            cells: vec![cell("kernel", first), cell("other", second)],
        }
    }

    #[test]
    fn the_ratio_is_of_the_shift_that_the_verdict_is_on() {
        let mut report = SuiteReport::new(&SuiteOptions::default());
        let first = [100.0, 100.0, 100.0, 200.0, 200.0];
        let second = [110.0, 110.0, 220.0, 220.0, 220.0];
        report.rows.push(row("launch", "us", &first, &second));
        report.compute();
        let other = &report.rows[0].cells[1];
        let percent = other
            .against_first
            .as_ref()
            .unwrap()
            .difference_percent
            .unwrap();
        // The ratio of the medians is 2.2.
        assert_eq!(other.time_ratio, Some(1.0 + percent / 100.0));
        assert!(percent < 80.0, "{percent}");
    }

    #[test]
    fn cells_are_of_the_engine_that_they_name_wherever_they_stand() {
        let mut report = SuiteReport::new(&SuiteOptions::default());
        report.rows.push(row("a", "us", &[100.0], &[200.0]));
        report.rows.push(row("b", "us", &[100.0], &[200.0]));
        report.rows.push(row("c", "us", &[], &[200.0]));
        report.rows[1].cells.reverse();
        // The first engine could not read this tree.
        report.rows[2].cells.remove(0);
        report.finish();
        for row in &report.rows {
            let names: Vec<&str> = row.cells.iter().map(|it| it.engine.as_str()).collect();
            assert_eq!(names, ["kernel", "other"], "{}", row.name);
        }
        let percent = |ratio: f64| (ratio * 100.0).round();
        let ratios = |report: &SuiteReport| -> Vec<Option<f64>> {
            let ratios = report.rows.iter().map(|row| row.cells[1].time_ratio);
            let mean = report.engines[1].geometric_mean;
            ratios.chain([mean]).map(|it| it.map(percent)).collect()
        };
        let twice = Some(200.0);
        assert_eq!(ratios(&report), [twice, twice, None, twice]);
        // In a file, the list of engines determines the order of the cells.
        report.rows[0].cells.reverse();
        let text = serde_json::to_vec(&report).unwrap();
        let Ok(Report::Suite(read)) = Report::from_json(&text) else {
            panic!("a suite");
        };
        assert_eq!(ratios(&read), [twice, twice, None, twice]);
        // Two cells of one engine in a row are refused, not merged.
        report.rows[0].cells[0] = report.rows[0].cells[1].clone();
        let text = serde_json::to_vec(&report).unwrap();
        let fault = Report::from_json(&text).unwrap_err();
        assert!(fault.contains("have the number 1"), "{fault}");
    }

    #[test]
    fn ratios_are_of_times_whatever_the_unit() {
        let mut report = SuiteReport::new(&SuiteOptions::default());
        for (name, unit, first, second) in [
            ("launch", "us", 100.0, 200.0),
            ("stream", "MB/s", 500.0, 1000.0),
            ("list", "s", 1.0, 1.0),
        ] {
            report.rows.push(row(name, unit, &[first], &[second]));
        }
        report.finish();
        let rows = report.rows.iter();
        let ratios: Vec<f64> = rows.filter_map(|row| row.cells[1].time_ratio).collect();
        for (ratio, right) in ratios.iter().zip([2.0, 0.5, 1.0]) {
            assert!((ratio - right).abs() < 1e-9, "{ratios:?}");
        }
        let other = &report.engines[1];
        assert!((other.geometric_mean.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(other.worst_row.as_deref(), Some("launch"));
        assert_eq!(report.engines[0].geometric_mean, Some(1.0));
        crate::schema::check("lab-suite", &serde_json::to_value(&report).unwrap());
        let table = Report::Suite(Box::new(report)).table();
        assert!(
            table.contains("1.00 s") && table.contains("geometric mean"),
            "{table}"
        );
        let narrow = table.lines().all(|line| line.chars().count() <= 100);
        assert!(narrow, "{table}");
    }
}
