//! The timeline of one launch: which threads ran on each CPU, which waited, and behind which. It is
//! coarse, so that every launch can keep its timeline until it is known which launches are the
//! median and the worst.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;

use sched_trace::blame::blame;
use sched_trace::latency::Wait;
use sched_trace::stats::us;
use sched_trace::timeline::Timeline;
use serde::{Deserialize, Serialize};

use super::owner::Owner;

/// Number of intervals into which a launch is divided; a page has no room for more.
const PIECES: u64 = 480;
/// Maximum number of waits to keep: the longest ones are kept.
const WAITS: usize = 120;

/// An interval on a CPU, in microseconds from the start of the launch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// Beginning.
    pub from_us: f64,
    /// End.
    pub to_us: f64,
    /// The owner of the threads that ran longest in the interval.
    pub owner: Owner,
}

/// A wait that is included in the figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waited {
    /// Beginning of the wait, from the start of the launch.
    pub from_us: f64,
    /// End.
    pub to_us: f64,
    /// The CPU on which the thread finally ran.
    pub cpu: u32,
    /// The thread's name.
    pub comm: String,
}

/// What ran on one CPU during the launch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// Number of the CPU.
    pub cpu: u32,
    /// Consecutive intervals; the CPU was idle between them.
    pub ran: Vec<Stretch>,
}

/// The timeline of one launch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// Duration of the launch.
    pub length_us: f64,
    /// One lane per CPU.
    pub cpus: Vec<Lane>,
    /// The longest waits.
    pub waits: Vec<Waited>,
}

impl Picture {
    pub(super) fn is_empty(&self) -> bool {
        self.cpus.is_empty()
    }
}

/// Time that was spent waiting behind threads of one name and priority.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blocked {
    /// Name of these threads.
    pub comm: String,
    /// The priority as the kernel traces it.
    pub priority: i32,
    /// Total time spent waiting behind these threads.
    pub total_us: f64,
}

impl fmt::Display for Blocked {
    /// Formats the name and priority as `fio[120]`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.priority {
            0 => out.write_str(&self.comm),
            priority => write!(out, "{}[{priority}]", self.comm),
        }
    }
}

/// The threads behind which the time of `waits` was spent, in order of that time, longest first. An
/// idle CPU that was about to run the waiting thread is listed as "idle CPU waking up", unless the
/// quota of the thread's cgroup kept it from running; time that the trace does not explain is
/// listed as "unknown".
pub(super) fn behind(timeline: &Timeline, waits: &[&Wait]) -> Vec<Blocked> {
    let blame = blame(timeline, waits.iter().copied());
    let threads = blame.behind.iter().map(|blocker| Blocked {
        comm: common_name(&blocker.comm.to_string()).into(),
        priority: blocker.prio,
        total_us: blocker.total_us,
    });
    let others = [
        ("idle CPU waking up", blame.idle_us - blame.quota_us),
        ("quota of the cgroup (cpu.max)", blame.quota_us),
        ("unknown", blame.unknown_us),
    ];
    let others = others.map(|(comm, total_us)| Blocked {
        comm: comm.into(),
        priority: 0,
        total_us,
    });
    summed(threads.chain(others))
}

/// Adds up the times by name and priority, longest first.
pub(super) fn summed(all: impl Iterator<Item = Blocked>) -> Vec<Blocked> {
    let mut sums: BTreeMap<(String, i32), f64> = BTreeMap::new();
    for blocked in all.filter(|blocked| blocked.total_us > 0.0) {
        *sums.entry((blocked.comm, blocked.priority)).or_default() += blocked.total_us;
    }
    let blocked = |((comm, priority), total_us)| Blocked {
        comm,
        priority,
        total_us,
    };
    let mut all: Vec<Blocked> = sums.into_iter().map(blocked).collect();
    all.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    all
}

/// A common name for threads whose names differ only in a number.
pub(super) fn common_name(comm: &str) -> &str {
    if comm.starts_with("kworker/") {
        "kworker"
    } else {
        comm
    }
}

pub(super) fn picture(
    timeline: &Timeline,
    Range { start, end }: Range<u64>,
    waits: &[&Wait],
    owner: &dyn Fn(i32) -> Owner,
) -> Picture {
    let lanes = timeline.cpus().map(|cpu| Lane {
        cpu,
        ran: lane(timeline, cpu, start..end, owner),
    });
    let mut longest: Vec<&&Wait> = waits.iter().collect();
    longest.sort_by_key(|wait| std::cmp::Reverse(wait.length_ns()));
    longest.truncate(WAITS);
    longest.sort_by_key(|wait| wait.start_ns);
    let since = |ns: u64| us(ns.clamp(start, end) - start);
    let waited = longest.into_iter().map(|wait| Waited {
        from_us: since(wait.start_ns),
        to_us: since(wait.end_ns),
        cpu: wait.cpu,
        comm: wait.comm.to_string(),
    });
    Picture {
        length_us: us(end - start),
        cpus: lanes.collect(),
        waits: waited.collect(),
    }
}

/// Builds the lane of a CPU, merging equal neighbours.
fn lane(
    timeline: &Timeline,
    cpu: u32,
    Range { start, end }: Range<u64>,
    owner: &dyn Fn(i32) -> Owner,
) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let edge = |piece: u64| start + (end - start) * piece / PIECES;
    for piece in 0..PIECES {
        let (from, to) = (edge(piece), edge(piece + 1));
        let mut times: HashMap<Owner, u64> = HashMap::new();
        for run in timeline.runs(cpu, from, to) {
            *times.entry(owner(run.pid)).or_default() += run.length_ns();
        }
        let most = times.into_iter().max_by_key(|&(owner, ns)| (ns, owner));
        let owner = most.map_or(Owner::Idle, |(owner, _)| owner);
        let to_us = us(to - start);
        match stretches.last_mut() {
            Some(last) if last.owner == owner => last.to_us = to_us,
            _ => stretches.push(Stretch {
                from_us: us(from - start),
                to_us,
                owner,
            }),
        }
    }
    stretches.retain(|stretch| stretch.owner != Owner::Idle);
    stretches
}
