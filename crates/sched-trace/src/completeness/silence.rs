//! Silences that are not waits: a machine that pauses, a clock that jumps, and lines that were cut
//! out of a text.
//!
//! A thread that waits behind another one of the same kind runs within a few milliseconds. If a
//! thread always does so, and its CPU writes no event for a hundred milliseconds while the thread
//! is runnable, then events of that CPU are missing; if no CPU writes any event, time itself is
//! missing. Threads that often wait for long (SCHED_IDLE, CPU quotas) prove nothing, nor do threads
//! behind real-time threads that may run for long.

use super::hidden::Hidden;
use super::witness::Proof;
use crate::policy::REALTIME;
use crate::{Kind, Task, Trace};
use std::collections::{BTreeMap, HashMap};

/// Minimum length of a pause of all CPUs, longer than threads' turns.
const PAUSE_NS: u64 = 20_000_000;

/// Minimum length of a silence of one CPU, much longer than threads' turns.
const SILENCE_NS: u64 = 100_000_000;

/// Maximum number of gaps examined per wait; more would add nothing.
const GAPS: usize = 16;

/// Number of waits, or runs, needed to show what is usual for a thread.
const USUAL: usize = 20;

/// Factors by which a pause of all CPUs, and a silence of one CPU, must exceed the usual waits.
const MUCH: [u64; 2] = [2, 4];

/// A wait for a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    pub task: Task,
    /// The CPU on which the thread was queued.
    pub cpu: u32,
    pub start_ns: u64,
    pub end_ns: u64,
}

/// A period in which a CPU wrote no event, and the thread that the CPU ran.
#[derive(Clone, Copy, Debug)]
struct Gap {
    from_ns: u64,
    until_ns: u64,
    runner: Task,
}

/// Silences of all CPUs, and of single CPUs.
#[derive(Debug, Default)]
pub(super) struct Silences {
    pub of_all: Vec<(u64, u64)>,
    pub of_one: Vec<Proof>,
}

impl Silences {
    /// Finds the silences; `waits` are all waits, including those that outlast the trace.
    pub fn of(trace: &Trace, waits: &[Waited]) -> Self {
        let pauses = pauses(trace);
        let gaps = gaps(trace, &Hidden::of(trace));
        let mut found = Self::default();
        if gaps.is_empty() {
            return found;
        }
        let usual = Usual::of(trace, waits);
        for wait in waits {
            let gaps = gaps.get(&wait.cpu).map_or(&[][..], |gaps| gaps);
            let first = gaps.partition_point(|gap| gap.from_ns < wait.start_ns);
            let within = gaps[first..].iter();
            let within = within.take_while(|gap| gap.until_ns <= wait.end_ns);
            for gap in within.take(GAPS) {
                found.add(gap, wait, &pauses, &usual);
            }
        }
        found.of_all.sort_unstable();
        found.of_all.dedup();
        found
    }

    fn add(&mut self, gap: &Gap, wait: &Waited, pauses: &[(u64, u64)], usual: &Usual) {
        let at = pauses.partition_point(|(from, _)| *from < gap.from_ns);
        let pause = pauses.get(at).filter(|(_, until)| *until <= gap.until_ns);
        let pause_ns = pause.map_or(0, |(from, until)| until - from);
        let is_pause = gap.length_ns() - pause_ns < PAUSE_NS;
        if !usual.contradicts(gap, wait, MUCH[usize::from(!is_pause)]) {
            return;
        }
        if is_pause {
            self.of_all.extend(pause);
        } else if gap.length_ns() > SILENCE_NS {
            let Task { comm, pid, .. } = wait.task;
            self.of_one.push(Proof {
                cpu: Some(wait.cpu),
                pid,
                from_ns: gap.from_ns,
                until_ns: gap.until_ns,
                single: false,
                reason: format!(
                    "it wrote none, although {comm}:{pid}, which waits for it, usually runs soon"
                ),
            });
        }
    }
}

impl Gap {
    fn length_ns(&self) -> u64 {
        self.until_ns - self.from_ns
    }
}

/// Lengths of waits or of runs, by thread, in ascending order.
type Lengths = HashMap<i32, Vec<u64>>;

/// How long threads usually wait, and how long real-time threads usually run.
struct Usual {
    waits: Lengths,
    runs: Lengths,
}

impl Usual {
    fn of(trace: &Trace, waits: &[Waited]) -> Self {
        let lengths = waits
            .iter()
            .map(|wait| (wait.task.pid, wait.end_ns.saturating_sub(wait.start_ns)));
        Self {
            waits: sorted(lengths),
            runs: sorted(runs(trace).into_iter()),
        }
    }

    /// Whether the thread would have run before the gap ended, so that the gap proves missing
    /// events.
    fn contradicts(&self, gap: &Gap, wait: &Waited, much: u64) -> bool {
        let (runner, length) = (gap.runner, gap.length_ns());
        let is_normal = runner.prio >= REALTIME && wait.task.prio <= runner.prio;
        runner.pid != wait.task.pid
            && is_unusual(&self.waits, wait.task.pid, length / much)
            && (runner.pid <= 0 || is_normal || is_unusual(&self.runs, runner.pid, length / much))
    }
}

/// Whether enough lengths are known for a thread, and few of them are this long.
fn is_unusual(lengths: &Lengths, pid: i32, length: u64) -> bool {
    let all = lengths.get(&pid).filter(|all| all.len() >= USUAL);
    let long = |all: &Vec<u64>| all.len() - all.partition_point(|of| *of < length);
    all.is_some_and(|all| long(all) <= 1 + all.len() / USUAL)
}

fn sorted(lengths: impl Iterator<Item = (i32, u64)>) -> Lengths {
    let mut sorted = Lengths::new();
    for (pid, length) in lengths {
        sorted.entry(pid).or_default().push(length);
    }
    sorted.values_mut().for_each(|all| all.sort_unstable());
    sorted
}

/// The runs of real-time threads.
fn runs(trace: &Trace) -> Vec<(i32, u64)> {
    let mut entered: BTreeMap<u32, (Task, u64)> = BTreeMap::new();
    let mut runs = Vec::new();
    for event in &trace.events {
        if let Kind::Switch { next, .. } = event.kind
            && let Some((task, since)) = entered.insert(event.cpu, (next, event.time_ns))
            && task.prio < REALTIME
        {
            runs.push((task.pid, event.time_ns - since));
        }
    }
    runs
}

/// Periods without an event from any CPU.
fn pauses(trace: &Trace) -> Vec<(u64, u64)> {
    let pairs = trace.events.windows(2);
    let pairs = pairs.map(|pair| (pair[0].time_ns, pair[1].time_ns));
    pairs
        .filter(|(from, until)| until - from > PAUSE_NS)
        .collect()
}

/// The gaps of each CPU, including the one before the end of the trace, unless a hidden thread ran.
fn gaps(trace: &Trace, hidden: &Hidden) -> BTreeMap<u32, Vec<Gap>> {
    let mut last: BTreeMap<u32, (u64, Option<Task>)> = BTreeMap::new();
    let mut gaps: BTreeMap<u32, Vec<Gap>> = BTreeMap::new();
    let mut add = |cpu: u32, from_ns: u64, until_ns: u64, runner: Option<Task>| {
        if let Some(runner) =
            runner.filter(|runner| until_ns - from_ns > PAUSE_NS && !hidden.has(runner.pid))
        {
            gaps.entry(cpu).or_default().push(Gap {
                from_ns,
                until_ns,
                runner,
            });
        }
    };
    for event in &trace.events {
        let (before, runner) = last.entry(event.cpu).or_insert((event.time_ns, None));
        add(event.cpu, *before, event.time_ns, *runner);
        *before = event.time_ns;
        if let Kind::Switch { next, .. } = event.kind {
            *runner = Some(next);
        }
    }
    let end_ns = trace.span().map_or(0, |(_, end)| end);
    for (cpu, (before, runner)) in last {
        add(cpu, before, end_ns, runner);
    }
    gaps
}
