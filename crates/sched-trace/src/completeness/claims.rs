//! Conclusions from the claims of a recorder or a reader.

use super::witness::Proof;
use crate::{Claims, Event, Loss};
use std::collections::{BTreeMap, BTreeSet};

/// Whether the recorder counted the events of all CPUs named in the trace, every CPU has events,
/// and none were lost.
pub(super) fn are_whole(claims: &Claims, events: &[Event]) -> bool {
    let cpus: BTreeSet<u32> = events.iter().map(|event| event.cpu).collect();
    let all = |of: &BTreeSet<u32>| of.iter().all(|cpu| claims.counted.contains(cpu));
    let silent = claims.cpus.difference(&cpus).next().is_some();
    claims.losses.is_empty() && all(&cpus) && all(&claims.cpus) && !silent
}

/// The intervals in which events were lost. Each begins with the last event before the loss.
pub(super) fn proofs(claims: &Claims, events: &[Event]) -> Vec<Proof> {
    let mut times: BTreeMap<Option<u32>, Vec<u64>> = BTreeMap::new();
    let lossy: BTreeSet<Option<u32>> = claims.losses.iter().map(|loss| loss.cpu).collect();
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
            single: false,
            reason: loss.reason.into(),
        }
    };
    claims.losses.iter().map(proof).collect()
}
