//! What the recorder or the reader of a file knows of the completeness of its events.

use super::witness::Proof;
use crate::Event;
use std::collections::{BTreeMap, BTreeSet};

/// What is known besides the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Places at which events were lost.
    pub losses: Vec<Loss>,
    /// Times at which another recording begins, ascending.
    pub seams: Vec<u64>,
    /// CPUs that were recorded, as far as the file names them.
    pub cpus: BTreeSet<u32>,
    /// CPUs whose events the recorder counted, and which are all there.
    pub counted: BTreeSet<u32>,
    /// The recorder leaves out a wake-up or a migration now and then without a word, for example one
    /// that occurs while it writes another event (perf): a single one that is missing proves nothing.
    pub skips_some: bool,
}

/// Events that are missing before an event of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The CPU; `None` where that is not known.
    pub cpu: Option<u32>,
    /// The next event of that CPU; `u64::MAX` if there is none.
    pub until_ns: u64,
    /// How that is known.
    pub reason: &'static str,
}

impl Claims {
    /// Whether the recorder counted the events of all CPUs that the trace names, each has some, and
    /// none were lost.
    pub(super) fn are_whole(&self, events: &[Event]) -> bool {
        let cpus: BTreeSet<u32> = events.iter().map(|event| event.cpu).collect();
        let all = |of: &BTreeSet<u32>| of.iter().all(|cpu| self.counted.contains(cpu));
        let silent = self.cpus.difference(&cpus).next().is_some();
        self.losses.is_empty() && all(&cpus) && all(&self.cpus) && !silent
    }

    /// The intervals of the losses: each begins with the last event before it.
    pub(super) fn proofs(&self, events: &[Event]) -> Vec<Proof> {
        let mut times: BTreeMap<Option<u32>, Vec<u64>> = BTreeMap::new();
        let lossy: BTreeSet<Option<u32>> = self.losses.iter().map(|loss| loss.cpu).collect();
        for event in events {
            for cpu in [Some(event.cpu), None] {
                if lossy.contains(&cpu) {
                    times.entry(cpu).or_default().push(event.time_ns);
                }
            }
        }
        let (first, last) = match (events.first(), events.last()) {
            (Some(first), Some(last)) => (first.time_ns, last.time_ns),
            _ => return Vec::new(),
        };
        let proof = |loss: &Loss| {
            let times = times.get(&loss.cpu).map_or(&[][..], |times| times);
            let at = times.partition_point(|time| *time < loss.until_ns);
            let before = at.checked_sub(1).and_then(|at| times.get(at)).copied();
            let from_ns = before.unwrap_or(first);
            Proof {
                cpu: loss.cpu,
                pid: 0,
                from_ns,
                until_ns: loss.until_ns.min(last).max(from_ns),
                reason: loss.reason.into(),
            }
        };
        self.losses.iter().map(proof).collect()
    }
}
