//! Threads that the recorder hides (`set_event_notrace_pid`, filters by pid), and broken chains of
//! switches.
//!
//! Switches from a hidden thread are not written, nor are the wake-ups that it causes. Other
//! threads are seen entering and leaving CPUs; a hidden one is only seen entering. What happens
//! during its run is unknown, and events before and after the run contradict each other, but
//! nothing that should be in the trace is missing.

use super::times::{touches, union};
use crate::{Kind, Trace, UNKNOWN_PID};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A thread that enters a CPU this often, and never leaves one, is hidden.
const STAYS: usize = 2;

/// Events that are missing because of hidden threads, and events missing for other reasons.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    pids: BTreeSet<i32>,
    /// Periods in which hidden threads ran, merged.
    blind: Vec<(u64, u64)>,
    /// Times at which a thread left a CPU that another thread, which is not hidden, had entered.
    breaks: Vec<u64>,
}

impl Hidden {
    pub fn of(trace: &Trace) -> Self {
        let mut left: HashSet<i32> = HashSet::new();
        // For each CPU, the thread that entered it, and when.
        let mut current: BTreeMap<u32, (i32, u64)> = BTreeMap::new();
        let mut stays: BTreeMap<i32, Vec<(u64, u64)>> = BTreeMap::new();
        for event in &trace.events {
            let Kind::Switch { prev, next, .. } = event.kind else {
                continue;
            };
            left.insert(prev.pid);
            let entered = current.insert(event.cpu, (next.pid, event.time_ns));
            if let Some((pid, since)) = entered
                && pid > 0
                && ![pid, UNKNOWN_PID].contains(&prev.pid)
            {
                stays.entry(pid).or_default().push((since, event.time_ns));
            }
        }
        let is_hidden = |pid: &i32, stays: &Vec<_>| stays.len() >= STAYS && !left.contains(pid);
        let (hidden, broken): (BTreeMap<_, _>, BTreeMap<_, _>) = stays
            .into_iter()
            .partition(|(pid, stays)| is_hidden(pid, stays));
        let mut breaks: Vec<u64> = broken.values().flatten().map(|(_, until)| *until).collect();
        breaks.sort_unstable();
        Self {
            blind: union(hidden.values().flatten().copied().collect()),
            pids: hidden.into_keys().collect(),
            breaks,
        }
    }

    /// Whether a thread is hidden.
    pub fn has(&self, pid: i32) -> bool {
        self.pids.contains(&pid)
    }

    /// Whether hidden threads explain a contradiction in this thread's events between these times;
    /// `single` says whether one missing event would explain the contradiction.
    pub fn explains(&self, pid: i32, single: bool, from_ns: u64, until_ns: u64) -> bool {
        self.has(pid) || single && touches(&self.blind, from_ns, until_ns)
    }

    /// Whether a switch between threads that are not hidden is missing in this period.
    pub fn is_broken(&self, from_ns: u64, until_ns: u64) -> bool {
        let at = self.breaks.partition_point(|at| *at <= from_ns);
        self.breaks.get(at).is_some_and(|at| *at <= until_ns)
    }
}
