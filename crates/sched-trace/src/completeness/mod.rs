//! How complete the events of a trace are: by CPU and interval, whether they are known to be
//! complete, known to be incomplete, or neither.
//!
//! A header that reports no loss proves nothing: a CPU that was not recorded, a ring buffer that
//! was overwritten on one CPU, and a removed line leave no mark. The events themselves can prove a
//! loss: a thread that is woken twice must have run in between, and if no CPU shows that run,
//! events are missing (`witness.rs`). Recorders and readers add what they know as
//! [`crate::Claims`].

mod claims;
mod hidden;
mod silence;
mod times;
mod witness;

#[cfg(test)]
mod tests;

use crate::{Notice, Trace};
use hidden::Hidden;
use serde::Serialize;
use silence::Silences;
pub(crate) use silence::Waited;
use std::collections::{BTreeMap, BTreeSet};
use times::{touches, union};
use witness::Proof;

/// A wait is uncertain if all CPUs were silent for this long within it, because anything that could
/// end the wait would have caused an event. Such a silence is a pause of the machine, or a gap
/// between two recordings in one file.
const SILENCE_NS: u64 = 2_000_000_000;

/// The same limit if the events of several CPUs were not counted: within this time, a timer would
/// have woken a thread on one of these CPUs.
const UNCOUNTED_NS: u64 = 500_000_000;

/// Maximum number of silences examined for a notice.
const NOTED: usize = 16;

/// Maximum number of intervals kept per CPU; if there are more, they are merged.
const INTERVALS: usize = 10_000;

/// The completeness of the events of a CPU in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Coverage {
    /// The recorder counted the events, and none are missing.
    Whole,
    /// Some events are missing.
    Broken,
    /// Nothing contradicts the completeness of the events, and nothing proves it.
    Unknown,
}

/// An interval of one CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// The CPU; `None` if the trace does not show which.
    pub cpu: Option<u32>,
    /// Beginning, in the clock of the trace.
    pub from_ns: u64,
    /// End.
    pub until_ns: u64,
    /// How complete the events in the interval are.
    pub coverage: Coverage,
    /// The evidence that events are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How complete the events of a trace are.
#[derive(Clone, Debug, Default)]
pub struct Completeness {
    /// Intervals by CPU, ordered by time. The intervals of a CPU do not overlap.
    pub intervals: Vec<Interval>,
    /// Times at which another recording begins within the trace.
    pub seams: Vec<u64>,
    /// Whether the recorder counted the events of all CPUs and lost none. If so, the kernel never
    /// wrote the events that are missing.
    pub is_counted: bool,
    /// Number of contradictions in the events, each of which proves that events are missing.
    pub proofs: u64,
    /// Periods without any event, each too long to be a wait, ordered by time.
    silences: Vec<(u64, u64)>,
    /// The silences in which threads were runnable.
    paused: Vec<(u64, u64)>,
    /// Proofs that events are missing.
    known: Vec<Proof>,
    /// Broken intervals of all CPUs, merged, ordered by time.
    broken: Vec<(u64, u64)>,
    /// By thread, the intervals in which the kernel omitted events of that thread. If a recorder
    /// counted all events, any contradiction shows an omission; otherwise only an isolated one
    /// does.
    omitted: BTreeMap<i32, Vec<(u64, u64)>>,
}

/// Determines how complete the events of a trace are.
pub fn of(trace: &Trace) -> Completeness {
    let Some(span) = trace.span() else {
        return Completeness::default();
    };
    let claims = &trace.claims;
    // Clocks that differ between CPUs cause contradictions.
    let witnessed = match trace.clock.as_str() {
        "local" => Vec::new(),
        _ => witness::proofs(trace),
    };
    let mut found = Completeness {
        seams: claims.seams.clone(),
        is_counted: claims::are_whole(claims, &trace.events),
        proofs: witnessed.len() as u64,
        known: claims::proofs(claims, &trace.events),
        ..Completeness::default()
    };
    found.silences = silences(trace, found.is_counted);
    let (omitted, known) = match found.is_counted {
        true => (witnessed, Vec::new()),
        false => judged(witnessed, trace),
    };
    found.known.extend(known);
    for proof in omitted {
        let interval = (proof.from_ns, proof.until_ns);
        found.omitted.entry(proof.pid).or_default().push(interval);
    }
    for all in found.omitted.values_mut() {
        *all = union(std::mem::take(all));
    }
    found.join(trace, span);
    found
}

/// Separates contradictions that can be explained without a gap in the trace from the others.
///
/// A gap causes contradictions in several threads, or breaks a chain of switches. A single missing
/// event causes a contradiction in only one thread: the kernel did not write it, or the recorder
/// omits single events.
fn judged(proofs: Vec<Proof>, trace: &Trace) -> (Vec<Proof>, Vec<Proof>) {
    let hidden = Hidden::of(trace);
    let (mut omitted, others): (Vec<Proof>, Vec<Proof>) = proofs
        .into_iter()
        .partition(|proof| hidden.explains(proof.pid, proof.single, proof.from_ns, proof.until_ns));
    let intervals = others.iter().map(|proof| (proof.from_ns, proof.until_ns));
    let mut intervals: Vec<(u64, u64)> = intervals.collect();
    intervals.sort_unstable();
    // Periods in which contradictions overlap: from the beginning of one to the end of an earlier
    // one.
    let mut shared: Vec<(u64, u64)> = Vec::new();
    let mut latest = 0;
    for (from, until) in intervals {
        if from < latest {
            shared.push((from, latest.min(until).max(from + 1)));
        }
        latest = latest.max(until);
    }
    let shared = union(shared);
    let (single, gaps): (Vec<Proof>, Vec<Proof>) = others.into_iter().partition(|proof| {
        (proof.single || trace.claims.skips_some && proof.pid > 0)
            && !touches(&shared, proof.from_ns, proof.until_ns)
            && !hidden.is_broken(proof.from_ns, proof.until_ns)
    });
    omitted.extend(single);
    (omitted, gaps)
}

impl Completeness {
    /// Merges the proofs of each CPU into intervals.
    fn join(&mut self, trace: &Trace, span: (u64, u64)) {
        let by_cpu = joined(self.known.clone());
        let broken = by_cpu.values().flatten();
        let broken = broken.map(|proof| (proof.from_ns, proof.until_ns));
        self.broken = union(broken.collect());
        self.intervals = intervals(trace, span, by_cpu);
    }

    /// Adds the silences in which waiting threads would usually have run, unless a recorder counted
    /// all events.
    pub(crate) fn add_silences(&mut self, trace: &Trace, waits: &[Waited]) {
        let Some(span) = trace.span().filter(|_| !self.is_counted) else {
            return;
        };
        let Silences { of_all, of_one } = Silences::of(trace, waits);
        let is_spanned = |(from, until): &&(u64, u64)| {
            let mut waits = waits.iter();
            waits.any(|wait| wait.start_ns <= *from && *until <= wait.end_ns)
        };
        let long = self.silences.iter().take(NOTED).filter(is_spanned);
        self.paused = long.chain(&of_all).copied().collect();
        self.silences.extend(of_all);
        for all in [&mut self.paused, &mut self.silences] {
            all.sort_unstable();
            all.dedup();
        }
        // perf counts the events that do not fit into its buffers.
        if !of_one.is_empty() && !trace.claims.skips_some {
            self.proofs += of_one.len() as u64;
            self.known.extend(of_one);
            self.join(trace, span);
        }
    }

    /// Whether events are known to be missing anywhere.
    pub fn is_broken(&self) -> bool {
        !self.broken.is_empty()
    }

    /// Threads of which the kernel omitted single events, and the times at which the trace reveals
    /// the omissions.
    pub(crate) fn omitted(&self) -> impl Iterator<Item = (i32, u64)> {
        let all = self.omitted.iter();
        all.flat_map(|(pid, all)| all.iter().map(|(_, until)| (*pid, *until)))
    }

    /// Whether a thread's wait is doubtful, because events that it depends on may be missing.
    pub fn doubts(&self, pid: i32, from_ns: u64, until_ns: u64) -> bool {
        let omitted = self.omitted.get(&pid);
        let after = self.silences.partition_point(|(_, end)| *end <= from_ns);
        let silence = self.silences.get(after);
        omitted.is_some_and(|all| touches(all, from_ns, until_ns))
            || touches(&self.broken, from_ns, until_ns)
            // A silence begins and ends with an event, so it lies either entirely within the wait
            // or outside it.
            || silence.is_some_and(|(start, end)| *start >= from_ns && *end <= until_ns)
    }

    /// Times at which knowledge about threads ends: at seams, and at the ends of broken intervals.
    pub(crate) fn edges(&self) -> Vec<Edge> {
        let seams = self.seams.iter().map(|&at_ns| Edge { at_ns, seam: true });
        let ends = self
            .broken
            .iter()
            .map(|&(_, at_ns)| Edge { at_ns, seam: false });
        let mut edges: Vec<Edge> = seams.chain(ends).collect();
        edges.sort_by_key(|edge| edge.at_ns);
        edges
    }

    /// Index of the part of the trace, between seams, that contains this time.
    pub(crate) fn part(&self, time_ns: u64) -> usize {
        self.seams.partition_point(|seam| *seam <= time_ns)
    }

    /// Notices for readers of the figures.
    pub fn notices(&self) -> Vec<Notice> {
        let mut notices: Vec<Notice> = self
            .seams
            .iter()
            .map(|&at_ns| Notice::Seam { at_ns })
            .collect();
        let broken = |interval: &&Interval| interval.coverage == Coverage::Broken;
        let mut cpus: BTreeMap<Option<u32>, (usize, Interval)> = BTreeMap::new();
        for interval in self.intervals.iter().filter(broken) {
            let new = || (0, interval.clone());
            cpus.entry(interval.cpu).or_insert_with(new).0 += 1;
        }
        notices.extend(cpus.into_values().map(|(count, first)| Notice::Broken {
            cpu: first.cpu,
            count,
            from_ns: first.from_ns,
            until_ns: first.until_ns,
            reason: first.reason.unwrap_or_default(),
        }));
        notices.extend(
            self.paused
                .first()
                .map(|&(from_ns, until_ns)| Notice::Paused {
                    count: self.paused.len(),
                    from_ns,
                    until_ns,
                }),
        );
        notices
    }
}

/// A time at which the states of all threads become unknown; at a seam, so does what runs on the
/// CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub at_ns: u64,
    pub seam: bool,
}

/// The proofs by CPU, with overlapping ones merged.
fn joined(mut proofs: Vec<Proof>) -> BTreeMap<Option<u32>, Vec<Proof>> {
    proofs.sort_by_key(|proof| (proof.cpu, proof.from_ns));
    let mut by_cpu: BTreeMap<Option<u32>, Vec<Proof>> = BTreeMap::new();
    for proof in proofs {
        let all = by_cpu.entry(proof.cpu).or_default();
        let full = all.len() >= INTERVALS;
        match all.last_mut() {
            Some(last) if last.until_ns >= proof.from_ns || full => {
                last.until_ns = last.until_ns.max(proof.until_ns);
            }
            _ => all.push(proof),
        }
    }
    by_cpu
}

/// The broken intervals of each CPU, and what is known about the time between them.
fn intervals(
    trace: &Trace,
    (first, last): (u64, u64),
    mut broken: BTreeMap<Option<u32>, Vec<Proof>>,
) -> Vec<Interval> {
    let claims = &trace.claims;
    let mut cpus: BTreeSet<u32> = trace.events.iter().map(|event| event.cpu).collect();
    cpus.extend(&claims.cpus);
    cpus.extend(broken.keys().flatten());
    let mut intervals = Vec::new();
    for cpu in cpus.into_iter().map(Some).chain([None]) {
        let coverage = match cpu {
            Some(cpu) if claims.counted.contains(&cpu) => Coverage::Whole,
            _ => Coverage::Unknown,
        };
        let mut from_ns = first;
        let rest = |from_ns, until_ns| Interval {
            cpu,
            from_ns,
            until_ns,
            coverage,
            reason: None,
        };
        for proof in broken.remove(&cpu).unwrap_or_default() {
            if from_ns < proof.from_ns && cpu.is_some() {
                intervals.push(rest(from_ns, proof.from_ns));
            }
            from_ns = proof.until_ns;
            intervals.push(Interval {
                cpu,
                from_ns: proof.from_ns,
                until_ns: proof.until_ns,
                coverage: Coverage::Broken,
                reason: Some(proof.reason),
            });
        }
        if from_ns < last && cpu.is_some() {
            intervals.push(rest(from_ns, last));
        }
    }
    intervals
}

/// Periods in which no CPU wrote an event.
fn silences(trace: &Trace, is_counted: bool) -> Vec<(u64, u64)> {
    let first = trace.events.first().map(|event| event.cpu);
    let several = trace.events.iter().any(|event| Some(event.cpu) != first);
    let long = match several && !is_counted {
        true => UNCOUNTED_NS,
        false => SILENCE_NS,
    };
    let pairs = trace.events.windows(2);
    let pairs = pairs.map(|pair| (pair[0].time_ns, pair[1].time_ns));
    pairs.filter(|(from, until)| until - from > long).collect()
}
