//! The parts that the reports of all experiments share, and their text. Text, page and exports are
//! made only from these parts.

use crate::environment::Environment;
use crate::figure::{Figure, tally};
use crate::table::{Table, wrapped};

/// The report of an experiment, or several reports side by side.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The experiment's name on the command line.
    pub(crate) kind: &'static str,
    /// Title of the page.
    pub(crate) title: &'static str,
    /// A description of the measurement, without machine and date.
    pub(crate) about: String,
    /// The environment of the run.
    pub(crate) environment: Option<Environment>,
    /// Why the figures must not be used; empty if the run is valid.
    pub(crate) faults: Vec<String>,
    /// Differences between the subjects and environments of the compared reports.
    pub(crate) differences: Vec<String>,
    /// The conclusion of the run; if there is none, the report counts the verdicts instead.
    pub(crate) conclusion: Option<String>,
    /// The tables that answer the experiment's question.
    pub(crate) summary: Vec<Table>,
    /// The measured figures, each with its rows; empty if the report has no samples.
    pub(crate) figures: Vec<Figure>,
    /// Tables that explain the answer.
    pub(crate) details: Vec<Table>,
    /// Notes on the limits of the figures.
    pub(crate) notes: Vec<String>,
    /// Text that explains the tables.
    pub(crate) legend: String,
    /// Additional charts for the page.
    pub(crate) drawings: String,
    /// Tables that the page shows on demand, each with its subject.
    pub(crate) appendix: Vec<(String, Table)>,
}

impl Findings {
    /// Text that belongs to a table even if the table is quoted alone.
    pub(crate) fn caption(&self) -> String {
        let valid = if self.is_valid() {
            "valid"
        } else {
            "NOT VALID"
        };
        format!("{}; {valid}", self.run())
    }

    /// What was measured, and on which machine.
    fn run(&self) -> String {
        let environment = self.environment.as_ref();
        let line = environment.map(|it| format!("; {}", it.line()));
        format!("{}{}", self.about, line.unwrap_or_default())
    }

    fn is_valid(&self) -> bool {
        self.faults.is_empty()
    }

    /// The conclusion; empty if the run is not valid.
    pub(crate) fn conclusion(&self) -> String {
        let tally = || tally(&self.figures);
        match self.is_valid() {
            true => self.conclusion.clone().unwrap_or_else(tally),
            false => String::new(),
        }
    }

    /// The answer alone: a sentence, and a row per engine.
    pub(crate) fn answer(&self) -> String {
        let details = match (self.details.len(), self.notes.len()) {
            (0, _) => return self.table(),
            (_, 0) => String::new(),
            (_, 1) => ", 1 note".into(),
            (_, count) => format!(", {count} notes"),
        };
        let (head, end) = (self.head(), self.end());
        format!("{head}More figures{details}: --details.\n{end}")
    }

    /// The whole report as text.
    pub(crate) fn table(&self) -> String {
        let mut out = self.head();
        for figure in self.figures.iter().filter(|_| !self.details.is_empty()) {
            let mut table = figure.table();
            let colon = if figure.of.is_empty() { "" } else { ": " };
            table.title += &format!("{colon}{}", figure.of);
            let verdicts = figure.verdicts().map(|(line, _)| format!("  {line}\n"));
            out += &format!("\n{}{}", table.text(), verdicts.collect::<String>());
        }
        let details = self.details.iter();
        out.extend(details.map(|table| format!("\n{}", table.text())));
        let notes = self.notes.iter();
        let notes: String = notes
            .map(|line| wrapped(&format!("note: {line}"), 6))
            .collect();
        let parts = [notes.as_str(), &self.legend].into_iter();
        out.extend(
            parts
                .filter(|part| !part.is_empty())
                .flat_map(|part| ["\n", part]),
        );
        out + self.end()
    }

    /// The text at the end of a report, after all figures.
    fn end(&self) -> &'static str {
        match self.is_valid() {
            true => "",
            false => "\nNOT VALID, see the reasons at the top.\n",
        }
    }

    /// Faults, conclusion and answer.
    fn head(&self) -> String {
        // Faults come before the tables, so that nobody quotes the tables without them.
        let signs = std::iter::once("NOT VALID: ").chain(std::iter::repeat("           "));
        let faults = self.faults.iter().zip(signs);
        let mut out: String = faults
            .map(|(reason, sign)| wrapped(&format!("{sign}{reason}"), sign.len()))
            .collect();
        let differences = self.differences.iter();
        out.extend(differences.map(|line| wrapped(line, 2)));
        out += &wrapped(&self.conclusion(), 0);
        out += &wrapped(
            &match self.is_valid() {
                true => self.caption(),
                false => self.run(),
            },
            0,
        );
        let tables = self.summary.iter();
        out.extend(tables.map(|table| format!("\n{}", table.text())));
        let groups: String = self.groups().map(|line| wrapped(&line, 2)).collect();
        out + if groups.is_empty() { "" } else { "\n" } + &groups
    }

    /// A line for each row whose samples fall into two groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = String> {
        self.figures.iter().flat_map(Figure::groups)
    }
}

/// The reasons why a report is not valid; a report from an early version may have none.
pub(crate) fn reasons(valid: bool, reasons: &[String]) -> Vec<String> {
    match (valid, reasons) {
        (true, _) => Vec::new(),
        (false, []) => vec!["the report is marked as not valid".into()],
        (false, reasons) => reasons.to_vec(),
    }
}
