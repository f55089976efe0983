//! A simple calculator: pairs wake-ups and preemptions with the switches that end them.

use sched_trace::{Kind, Trace, Wake};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Waits of one thread, after wake-ups and preemptions together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    pub count: u64,
    pub total_us: f64,
    pub maximum_us: f64,
}

impl Row {
    pub fn is_near(self, other: Self, tolerance: f64) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= tolerance * b + 2.0;
        // In a row with few waits, a difference of one may be due to the edge of a recording.
        let count = (self.count.abs_diff(other.count)) as f64;
        count <= (tolerance * other.count as f64).max(1.0)
            && (count > 0.0 && other.count < 20 || near(self.total_us, other.total_us))
            && (count > 0.0 || near(self.maximum_us, other.maximum_us))
    }
}

/// Every wait: thread, beginning, and end.
pub struct Rows(Vec<(i32, u64, u64)>);

impl Rows {
    /// The rows of unrelated recordings.
    pub fn of(traces: impl Iterator<Item = Trace>) -> Self {
        Self(traces.flat_map(|trace| Self::of_one(&trace).0).collect())
    }

    fn of_one(trace: &Trace) -> Self {
        let (mut awake, mut running) = (HashMap::new(), HashMap::new());
        // Threads that are being woken while they run: they may be about to sleep.
        let mut raced = HashSet::new();
        let mut waits = Vec::new();
        for event in &trace.events {
            let now = event.time_ns;
            match event.kind {
                Kind::Wake { wake, task, .. } if task.pid > 0 => {
                    let runs = running.get(&task.pid) == Some(&true);
                    match wake {
                        Wake::Done => _ = raced.remove(&task.pid),
                        _ if runs => _ = raced.insert(task.pid),
                        _ if raced.remove(&task.pid) => _ = awake.insert(task.pid, now),
                        _ => _ = awake.entry(task.pid).or_insert(now),
                    }
                }
                Kind::Switch {
                    prev,
                    prev_state,
                    next,
                } => {
                    awake.remove(&prev.pid);
                    if prev_state.is_runnable() {
                        raced.remove(&prev.pid);
                    }
                    if prev.pid > 0 && (prev_state.is_runnable() || raced.contains(&prev.pid)) {
                        awake.insert(prev.pid, now);
                    }
                    raced.remove(&next.pid);
                    running.insert(prev.pid, false);
                    running.insert(next.pid, true);
                    if let Some(since) = awake.remove(&next.pid) {
                        waits.push((next.pid, since, now));
                    }
                }
                _ => {}
            }
        }
        Self(waits)
    }

    /// The rows of waits that begin and end between two times.
    pub fn within(&self, (begins, ends): (u64, u64)) -> BTreeMap<i32, Row> {
        let mut rows: BTreeMap<i32, Row> = BTreeMap::new();
        let is_within = |since: u64, end: u64| since >= begins && end <= ends;
        let all = self
            .0
            .iter()
            .filter(|(_, since, end)| is_within(*since, *end));
        for (pid, length) in all.map(|(pid, since, end)| (*pid, end - since)) {
            let row = rows.entry(pid).or_default();
            row.count += 1;
            row.total_us += length as f64 / 1e3;
            row.maximum_us = row.maximum_us.max(length as f64 / 1e3);
        }
        rows
    }
}
