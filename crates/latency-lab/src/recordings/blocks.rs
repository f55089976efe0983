//! A recording divided into blocks of equal length: how long the threads of each name waited in
//! each block. The total wait in a recording says nothing about how much the waiting varies over
//! time; the blocks show that.

use std::collections::{BTreeMap, BTreeSet};

use sched_trace::latency::{Filter, Group, GroupBy, Report, Wait, WorkRun};
use sched_trace::stats::{mean, us};
use sched_trace::{Comm, Kind, Name, Trace};

/// Maximum number of blocks in a recording: enough for a claim even if neighbours are joined.
const BLOCKS: u64 = 80;
/// Minimum length of a block: shorter blocks would contain only parts of single waits.
pub(super) const LEAST_NS: u64 = 25_000_000;
/// Minimum number of blocks that must remain when neighbours are joined.
const FEWEST: usize = 10;
/// Neighbours are joined as long as the correlation of each block with the next one exceeds this.
const ALIKE: f64 = 0.1;

/// How many durations were added, and their sum.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: u64,
    ns: u64,
}

impl Sum {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.ns = self.ns.saturating_add(ns);
    }

    fn average_us(self) -> Option<f64> {
        (self.count > 0).then(|| us(self.ns) / self.count as f64)
    }
}

/// The waits of one row in each block.
#[derive(Debug, Clone)]
pub(super) struct Series {
    /// Time waited within each block, including the parts of waits that extend beyond the block.
    waited_ns: Vec<u64>,
    /// The waits that ended in each block.
    waits: Vec<Sum>,
    /// The queue delays of the items that started in each block.
    delays: Vec<Sum>,
    /// The longest wait.
    pub(super) longest_ns: u64,
}

impl Series {
    fn new(blocks: usize) -> Series {
        Series {
            waited_ns: vec![0; blocks],
            waits: vec![Sum::default(); blocks],
            delays: vec![Sum::default(); blocks],
            longest_ns: 0,
        }
    }

    pub(super) fn waited_ns(&self) -> u64 {
        self.waited_ns.iter().sum()
    }

    /// The number of waits that ended, and their average length.
    pub(super) fn ended(&self) -> (u64, Option<f64>) {
        let mut sum = Sum::default();
        for block in &self.waits {
            sum.count += block.count;
            sum.ns = sum.ns.saturating_add(block.ns);
        }
        (sum.count, sum.average_us())
    }

    /// The average wait in each block in which a wait ended.
    pub(super) fn averages(&self) -> Vec<f64> {
        averages(&self.waits)
    }

    /// The average queue delay in each block in which an item started.
    pub(super) fn delays(&self) -> Vec<f64> {
        averages(&self.delays)
    }
}

fn averages(sums: &[Sum]) -> Vec<f64> {
    joined(sums.iter().filter_map(|sum| sum.average_us()).collect())
}

/// Replaces each pair of neighbours by its average, again and again, until the remaining values
/// hardly depend on one another, because the rules for claims assume independent samples.
fn joined(mut series: Vec<f64>) -> Vec<f64> {
    while series.len() >= 2 * FEWEST && correlation(&series) > ALIKE {
        series = series.chunks(2).map(mean).collect();
    }
    series
}

/// The correlation of each value with the next one.
fn correlation(series: &[f64]) -> f64 {
    let mean = mean(series);
    let off = |value: &f64| value - mean;
    let all: f64 = series.iter().map(|value| off(value).powi(2)).sum();
    let pairs: f64 = series
        .windows(2)
        .map(|two| off(&two[0]) * off(&two[1]))
        .sum();
    if all > 0.0 { pairs / all } else { 0.0 }
}

/// A recording divided into blocks.
pub(super) struct Blocks {
    pub(super) rows: BTreeMap<String, Series>,
    /// The names of all rows that could occur, including those of threads that never waited.
    pub(super) occur: BTreeSet<String>,
    first_ns: u64,
    length_ns: u64,
    pub(super) count: usize,
}

impl Blocks {
    pub(super) fn of(trace: &Trace, report: &Report, by: GroupBy, filter: &Filter<'_>) -> Blocks {
        let (first_ns, last_ns) = report.span.unwrap_or_default();
        let span = (last_ns - first_ns).max(1);
        let count = (span / LEAST_NS).clamp(1, BLOCKS);
        let mut blocks = Blocks {
            rows: BTreeMap::new(),
            occur: occurring(trace, report, by),
            first_ns,
            length_ns: span.div_ceil(count),
            count: count as usize,
        };
        let open = report.unfinished.iter();
        let open = open.filter(|wait| filter.accepts(report, wait));
        for wait in report.accepted(filter).chain(open) {
            if let Some(name) = row_of(report, wait, by) {
                blocks.add_parts(name, wait);
            }
        }
        for wait in report.accepted(filter) {
            if let Some(name) = row_of(report, wait, by) {
                let (block, ns) = (blocks.block(wait.end_ns), wait.length_ns());
                let series = blocks.series(name);
                series.waits[block].add(ns);
                series.longest_ns = series.longest_ns.max(ns);
            }
        }
        if by == GroupBy::Workqueue {
            for work in report.accepted_works(filter) {
                blocks.queued(report, work);
            }
        }
        blocks
    }

    /// Microseconds waited per second of the recording, block by block.
    pub(super) fn waited(&self, series: &Series) -> Vec<f64> {
        let seconds = self.length_ns as f64 / 1e9;
        let waited = series.waited_ns.iter();
        joined(waited.map(|&ns| us(ns) / seconds).collect())
    }

    /// The values of a row whose threads never waited.
    pub(super) fn never(&self) -> Vec<f64> {
        vec![0.0; self.count]
    }

    /// Converts a total time to microseconds per second of the recording.
    pub(super) fn per_second(&self, ns: u64) -> f64 {
        us(ns) / (self.length_ns as f64 * self.count as f64 / 1e9)
    }

    fn series(&mut self, name: String) -> &mut Series {
        let count = self.count;
        self.rows.entry(name).or_insert_with(|| Series::new(count))
    }

    fn block(&self, time_ns: u64) -> usize {
        let block = time_ns.saturating_sub(self.first_ns) / self.length_ns;
        (block as usize).min(self.count - 1)
    }

    /// Adds each part of a wait to the block that contains it.
    fn add_parts(&mut self, name: String, wait: &Wait) {
        let (from, to) = (self.block(wait.start_ns), self.block(wait.end_ns));
        let edge = |block: usize| self.first_ns + block as u64 * self.length_ns;
        let part = |block: usize| {
            let (begin, end) = (
                edge(block).max(wait.start_ns),
                edge(block + 1).min(wait.end_ns),
            );
            (block, end.saturating_sub(begin))
        };
        let parts: Vec<(usize, u64)> = (from..=to).map(part).collect();
        let series = self.series(name);
        for (block, ns) in parts {
            series.waited_ns[block] += ns;
        }
    }

    fn queued(&mut self, report: &Report, work: &WorkRun) {
        if let Some(queued) = work.queued_ns {
            let block = self.block(work.start_ns);
            let name = item(report, work.workqueue, work.function);
            let delay = work.start_ns.saturating_sub(queued);
            self.series(name).delays[block].add(delay);
        }
    }
}

/// The row that a wait belongs to.
fn row_of(report: &Report, wait: &Wait, by: GroupBy) -> Option<String> {
    match by {
        GroupBy::Workqueue => Some(item(report, wait.workqueue, wait.function?)),
        _ => Some(of_thread(report, (wait.pid, wait.comm), by)),
    }
}

/// The row that a group of waits belongs to.
pub(super) fn row_of_group(report: &Report, group: &Group, by: GroupBy) -> String {
    match group.function {
        Some(function) => item(report, group.workqueue, function),
        None => of_thread(report, (group.pid, group.comm), by),
    }
}

/// The name of a thread's row. All kworkers share the row "kworker", because it is left to chance
/// which of them serves an item.
fn of_thread(report: &Report, (pid, comm): (i32, Comm), by: GroupBy) -> String {
    let process = report.process(pid).map(|process| report.comm(process));
    let comm = match by {
        GroupBy::Process => process.filter(|comm| !comm.is_empty()).unwrap_or(comm),
        _ => comm,
    };
    match by {
        GroupBy::Task => format!("{comm}:{pid}"),
        _ if comm.is_kworker() => "kworker".into(),
        _ => comm.to_string(),
    }
}

/// The name of a row of work items, such as "events_unbound flush_to_ldisc".
fn item(report: &Report, queue: Option<Name>, function: Name) -> String {
    let queue = queue.map_or("?", |name| report.names.get(name));
    format!("{queue} {}", report.names.get(function))
}

/// The rows of all threads that ran, or of all items that were executed.
fn occurring(trace: &Trace, report: &Report, by: GroupBy) -> BTreeSet<String> {
    if by == GroupBy::Workqueue {
        let works = report.works.iter();
        let rows = works.map(|work| item(report, work.workqueue, work.function));
        return rows.collect();
    }
    let mut threads: BTreeSet<(i32, Comm)> = BTreeSet::new();
    for event in &trace.events {
        if let Kind::Switch { prev, next, .. } = event.kind {
            let named = [prev, next].into_iter();
            let named = named.filter(|task| task.pid > 0 && !task.comm.is_empty());
            threads.extend(named.map(|task| (task.pid, task.comm)));
        }
    }
    let rows = threads.into_iter().map(|of| of_thread(report, of, by));
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::compare;
    use fastrand::Rng;

    /// Block values with a long tail, each of which partly resembles the one before.
    fn in_spells(random: &mut Rng, around: f64) -> Vec<f64> {
        let mut spell = 1.0;
        let mut block = || {
            spell = 0.5 * spell - 0.5 * (1.0 - random.f64()).ln();
            around * spell
        };
        (0..80).map(|_| block()).collect()
    }

    #[test]
    fn recordings_of_the_same_are_rarely_called_different_though_blocks_resemble_their_neighbours()
    {
        let claims = |factor: f64| {
            let claims = (0..300).filter(|&seed| {
                let mut random = Rng::with_seed(seed);
                let old = joined(in_spells(&mut random, 100.0));
                compare(&old, &joined(in_spells(&mut random, 100.0 * factor))).claims()
            });
            claims.count()
        };
        let (same, thrice) = (claims(1.0), claims(3.0));
        assert!(same <= 9, "{same} of 300");
        assert!(thrice >= 280, "{thrice} of 300");
    }

    #[test]
    fn blocks_that_resemble_their_neighbours_are_joined() {
        let alternating: Vec<f64> = (0..40).map(|k| f64::from(k % 2)).collect();
        assert_eq!(joined(alternating).len(), 40);
        let slow: Vec<f64> = (0..40).map(|k| f64::from(k / 8 % 2)).collect();
        assert_eq!(joined(slow).len(), 10);
        assert_eq!(joined(vec![1.0; 40]).len(), 40);
    }
}
