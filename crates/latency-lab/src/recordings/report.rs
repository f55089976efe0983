//! The report of two recordings: one row per name, with the comparison of its waits.

use std::collections::{BTreeMap, BTreeSet};

use sched_trace::latency::{GroupBy, Report};
use sched_trace::stats::us;
use serde::Serialize;

use super::blocks::{Blocks, LEAST_NS, Series};
use super::selection::{Selection, Source};
use crate::figure::{Figure, amount, compared, comparisons, count, judged};
use crate::findings::Findings;
use crate::html;
use crate::statistics::{Comparison, correct, fewest_samples};
use crate::table::Table;

/// Identifies a recording and says how it was made.
#[derive(Debug, Clone, Serialize)]
pub struct Recording {
    /// The recording's file.
    pub file: String,
    /// The file's format.
    pub format: &'static str,
    /// The kernel's release, if the file has it.
    pub kernel: String,
    /// The settings of the kernel's scheduler, as far as the file shows them.
    pub scheduler: String,
    /// The CPUs on which events were recorded.
    pub cpus: Vec<u32>,
    /// The clock of the time stamps.
    pub clock: String,
    /// Number of events that were read.
    pub events: u64,
    /// Time from the first event to the last.
    pub span_us: f64,
    /// Number of blocks of equal length into which the recording is divided.
    pub blocks: usize,
}

impl Recording {
    pub(super) fn of(source: Source<'_>, report: &Report, blocks: usize) -> Recording {
        let (first, last) = report.span.unwrap_or_default();
        Recording {
            file: source.name.into(),
            format: report.format,
            kernel: source.trace.kernel.clone(),
            scheduler: report.scheduler.to_string(),
            cpus: report.cpus.clone(),
            clock: report.clock.clone(),
            events: report.events,
            span_us: us(last - first),
            blocks,
        }
    }
}

/// The waits of a row in one recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Waits {
    /// Number of waits that ended in the recording.
    pub waits: u64,
    /// The average length of these waits; null if there are none.
    pub average_us: Option<f64>,
    /// The longest of these waits.
    pub longest_us: f64,
    /// Time waited, including waits that outlast the recording.
    pub waited_us: f64,
    /// Time waited per second of the recording.
    pub waited_us_per_s: f64,
}

/// A row, in which the new recording is compared with the old one.
#[derive(Debug, Clone, Serialize)]
pub struct Differing {
    /// The name of the thread or process, or of the work queue and its function.
    pub name: String,
    /// False if too many events of these threads are missing; nothing is compared then.
    pub valid: bool,
    /// "old" or "new" if the row occurs only in the recording of this name.
    pub only: Option<&'static str>,
    /// The waits in the old recording.
    pub old: Waits,
    /// The waits in the new recording.
    pub new: Waits,
    /// Comparison of the time waited per second; the samples are the blocks.
    pub waited: Option<Comparison>,
    /// Comparison of the average wait; the samples are the blocks in which a wait ended.
    pub average: Option<Comparison>,
    /// Comparison of the items' average queue delay; the samples are the blocks in which an item
    /// started. Only for work queues.
    pub queue_delay: Option<Comparison>,
    /// The values of the blocks, with one figure for each measure.
    #[serde(skip)]
    figures: Vec<Figure>,
}

/// The report that `trace diff` prints as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct RecordingsReport {
    /// The kind of a row: "task", "comm", "process" or "workqueue".
    pub by: &'static str,
    /// Whether both recordings are valid.
    pub valid: bool,
    /// Why the recordings are not valid; empty if they are valid.
    pub not_valid_because: Vec<String>,
    /// The first recording, the baseline.
    pub old: Recording,
    /// The recording that is compared with the baseline.
    pub new: Recording,
    /// The rows with the most waiting in either recording; those that differ most come first.
    pub rows: Vec<Differing>,
    /// The number of rows left out, which have less waiting.
    pub left_out: usize,
    /// Notices about other differences between the recordings and about the limits of the figures.
    pub notices: Vec<String>,
}

/// One of the two recordings.
pub(super) struct Compared {
    pub(super) recording: Recording,
    pub(super) fault: Option<String>,
    pub(super) blocks: Blocks,
    /// For each row, whether it can be relied on.
    pub(super) valid: BTreeMap<String, bool>,
}

impl Compared {
    fn waits(&self, name: &str) -> Waits {
        let Some(series) = self.blocks.rows.get(name) else {
            return Waits::default();
        };
        let (waits, average_us) = series.ended();
        Waits {
            waits,
            average_us,
            longest_us: us(series.longest_ns),
            waited_us: us(series.waited_ns()),
            waited_us_per_s: self.blocks.per_second(series.waited_ns()),
        }
    }

    fn is_valid(&self, name: &str) -> bool {
        self.valid.get(name).copied().unwrap_or(true)
    }

    /// The samples of a row: one value for each block.
    fn samples(&self, name: &str, measure: &Measure) -> Vec<f64> {
        (measure.samples)(&self.blocks, self.blocks.rows.get(name))
    }
}

/// A measure by which rows are compared.
struct Measure {
    name: &'static str,
    unit: &'static str,
    samples: fn(&Blocks, Option<&Series>) -> Vec<f64>,
}

/// The measures by which rows are compared; the last one applies only to work queues.
const MEASURES: [Measure; 3] = [
    Measure {
        name: "waited per second",
        unit: "us/s",
        samples: |blocks, series| series.map_or_else(|| blocks.never(), |it| blocks.waited(it)),
    },
    Measure {
        name: "average wait",
        unit: "us",
        samples: |_, series| series.map_or_else(Vec::new, Series::averages),
    },
    Measure {
        name: "average queue delay",
        unit: "us",
        samples: |_, series| series.map_or_else(Vec::new, Series::delays),
    },
];

/// Explains the tables.
const LEGEND: &str = "\
A row has the waits of all threads of its name, added up: after wake-ups and after preemptions.
waited per second       time waited, divided by the length of the recording
average wait            of the waits that ended in the recording
The first two columns are averages of whole recordings, which a few long waits may raise. The shift
is that of a typical block, so its interval need not contain the difference of the averages.
Each recording is divided into blocks of equal length, and neighbours that resemble one another are
joined. The interval is that of the shift from the blocks of the old recording to those of the new
one, by the rules of the lab: 1 in 100 for all comparisons together. It says that the recordings
differ, not why: load, settings and the time of day contribute to the difference.
";

impl RecordingsReport {
    pub(super) fn new(
        selection: &Selection<'_>,
        old: &Compared,
        new: &Compared,
    ) -> RecordingsReport {
        let faults: Vec<String> = old.fault.iter().chain(&new.fault).cloned().collect();
        let (names, left_out) = longest(old, new, selection.most);
        let measures = match selection.by {
            GroupBy::Workqueue => &MEASURES[..],
            _ => &MEASURES[..2],
        };
        let row = |name: &&str| row(name, [old, new], measures, faults.is_empty());
        let mut report = RecordingsReport {
            by: match selection.by {
                GroupBy::Task => "task",
                GroupBy::Comm => "comm",
                GroupBy::Process => "process",
                GroupBy::Workqueue => "workqueue",
            },
            rows: names.iter().map(row).collect(),
            valid: faults.is_empty(),
            not_valid_because: faults,
            old: old.recording.clone(),
            new: new.recording.clone(),
            left_out,
            notices: Vec::new(),
        };
        correct(
            report
                .rows
                .iter_mut()
                .flat_map(|row| comparisons(&mut row.figures))
                .collect(),
        );
        report.rows.iter_mut().for_each(Differing::take_verdicts);
        let change = |row: &Differing| (row.new.waited_us_per_s - row.old.waited_us_per_s).abs();
        report.rows.sort_by(|a, b| change(b).total_cmp(&change(a)));
        report.notices = report.differences();
        let limits = [report.too_few(), report.doubtful()];
        report.notices.extend(limits.into_iter().flatten());
        report
    }

    /// The differences in how the recordings were made.
    fn differences(&self) -> Vec<String> {
        let (old, new) = (&self.old, &self.new);
        let cpus = |of: &Recording| {
            let cpus: Vec<String> = of.cpus.iter().map(ToString::to_string).collect();
            cpus.join(",")
        };
        let length = |of: &Recording| amount(of.span_us, "us");
        let all = [
            ("kernel", old.kernel.clone(), new.kernel.clone()),
            ("scheduler", old.scheduler.clone(), new.scheduler.clone()),
            ("CPUs", cpus(old), cpus(new)),
            ("length", length(old), length(new)),
            ("format", old.format.into(), new.format.into()),
        ];
        let differ = all.into_iter().filter(|(_, old, new)| old != new);
        let known = differ.filter(|(_, old, new)| !old.is_empty() && !new.is_empty());
        let line = |(what, was, is)| format!("{what} differs: {was}, in {} {is}", new.file);
        known.map(line).collect()
    }

    /// A notice that a recording has too few blocks for any claim.
    fn too_few(&self) -> Option<String> {
        let all = self.rows.iter().flat_map(|row| &row.figures);
        let compared = all.filter(|figure| figure.rows[1].against_first.is_some());
        let fewest = fewest_samples(compared.count());
        let short = [&self.old, &self.new]
            .into_iter()
            .find(|it| it.blocks < fewest)?;
        let length = amount(us(LEAST_NS) * fewest as f64, "us");
        Some(format!(
            "{}: too short for a claim about {} rows: at least {length} are needed",
            short.file,
            self.rows.len()
        ))
    }

    fn doubtful(&self) -> Option<String> {
        let rows = self.rows.iter().filter(|row| !row.valid).count();
        (rows > 0).then(|| {
            format!(
                "! not compared, {}: too many events of these threads are missing",
                count(rows, "row")
            )
        })
    }

    /// The whole report as text.
    pub fn table(&self) -> String {
        self.findings().table()
    }

    /// One HTML file with every block, which needs no network.
    pub fn to_html(&self) -> String {
        let json = serde_json::to_string_pretty(self).unwrap_or_default();
        html::report(&self.findings(), &json)
    }

    fn findings(&self) -> Findings {
        let noun = match self.by {
            "task" => "thread",
            "comm" => "thread name",
            "process" => "process",
            _ => "work queue and function",
        };
        let left_out = match self.left_out {
            0 => String::new(),
            rows => format!("; {rows} more rows wait less"),
        };
        let figures = self.rows.iter().flat_map(|row| row.figures.iter().cloned());
        let figures = figures.filter(|it| it.rows.iter().any(|row| !row.samples.is_empty()));
        Findings {
            kind: "trace diff",
            title: "Comparison of two scheduler recordings",
            about: format!(
                "old {}, new {}; a row is a {noun}{left_out}",
                self.old.file, self.new.file
            ),
            faults: self.not_valid_because.clone(),
            differences: self.notices.clone(),
            summary: (0..MEASURES.len())
                .map(|at| self.measured(at))
                .filter(|it| !it.rows.is_empty())
                .collect(),
            figures: figures.collect(),
            legend: LEGEND.into(),
            ..Findings::default()
        }
    }

    /// The table of one measure.
    fn measured(&self, at: usize) -> Table {
        let measure = &MEASURES[at];
        let mut table = Table::new(
            measure.name,
            &["old average", "new average", "shift of the blocks"],
        );
        table.words = true;
        for row in &self.rows {
            let Some(figure) = row.figures.get(at) else {
                continue;
            };
            if figure.rows.iter().all(|row| row.samples.is_empty()) {
                continue;
            }
            let [old, new] = [(0, &row.old), (1, &row.new)].map(|(side, waits)| {
                let value = match at {
                    0 => Some(waits.waited_us_per_s),
                    1 => waits.average_us,
                    _ => figure.rows[side].summary().map(|it| it.average),
                };
                let absent = row.only.is_some_and(|only| only != ["old", "new"][side]);
                value
                    .filter(|_| !absent)
                    .map_or("-".into(), |it| amount(it, measure.unit))
            });
            let name = if row.valid {
                row.name.clone()
            } else {
                format!("! {}", row.name)
            };
            table.add(
                &name,
                [format!("{old:>9}"), format!("{new:>9}"), row.change(at)],
            );
        }
        table
    }
}

impl Differing {
    /// The claim that the samples justify, in words.
    fn change(&self, at: usize) -> String {
        let figure = &self.figures[at];
        let shift = figure.rows[1].against_first.as_ref();
        let verdict = shift.map(|shift| judged(shift, &figure.unit));
        let only = match self.only {
            Some("old") if at == 0 => Some("gone".to_owned()),
            Some("new") if at == 0 => Some("appears".to_owned()),
            _ => None,
        };
        only.into_iter()
            .chain(verdict)
            .collect::<Vec<_>>()
            .join(": ")
    }

    fn take_verdicts(&mut self) {
        let verdict = |at: usize| self.figures.get(at)?.rows[1].against_first.clone();
        (self.waited, self.average, self.queue_delay) = (verdict(0), verdict(1), verdict(2));
    }
}

/// The rows with the most waiting in either recording, and the number of rows that are left out.
fn longest<'a>(old: &'a Compared, new: &'a Compared, most: usize) -> (Vec<&'a str>, usize) {
    let both = [old, new].map(|of| of.blocks.rows.keys().map(String::as_str));
    let names: BTreeSet<&str> = both.into_iter().flatten().collect();
    let waited = |name: &str| {
        let sides = [old, new].map(|of| of.waits(name).waited_us_per_s);
        sides[0].max(sides[1])
    };
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_by(|a, b| waited(b).total_cmp(&waited(a)));
    let left_out = names.len().saturating_sub(most);
    names.truncate(most);
    (names, left_out)
}

fn row(name: &str, sides: [&Compared; 2], measures: &[Measure], valid: bool) -> Differing {
    let is_valid = sides.iter().all(|side| side.is_valid(name));
    let there =
        sides.map(|side| side.blocks.occur.contains(name) || side.blocks.rows.contains_key(name));
    let figure = |measure: &Measure| {
        let samples = sides.map(|side| (side.recording.file.clone(), side.samples(name, measure)));
        let mut figure = Figure {
            name: format!("{name}, {}", measure.name),
            of: "",
            unit: measure.unit.into(),
            rows: compared(samples.into_iter()),
        };
        if !(valid && is_valid) {
            figure
                .rows
                .iter_mut()
                .for_each(|row| row.against_first = None);
        }
        figure
    };
    Differing {
        name: name.into(),
        valid: is_valid,
        only: match there {
            [true, false] => Some("old"),
            [false, true] => Some("new"),
            _ => None,
        },
        old: sides[0].waits(name),
        new: sides[1].waits(name),
        waited: None,
        average: None,
        queue_delay: None,
        figures: measures.iter().map(figure).collect(),
    }
}
