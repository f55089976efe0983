//! perf's output for a recording, thread by thread, and the differences between its counts and
//! ours.

use sched_trace::latency::Wait;
use sched_trace::{Kind, TaskState, Trace, Wake};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Delays of a thread or of work items.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    pub count: u64,
    pub total_ms: f64,
    pub maximum_ms: f64,
}

impl Row {
    pub fn add(&mut self, ms: f64) {
        let one = Row {
            count: 1,
            total_ms: ms,
            maximum_ms: ms,
        };
        self.join(one);
    }

    pub fn join(&mut self, other: Row) {
        self.count += other.count;
        self.total_ms += other.total_ms;
        self.maximum_ms = self.maximum_ms.max(other.maximum_ms);
    }

    /// Whether both rows are equal within 1 per cent, plus perf's rounding to microseconds.
    pub fn is_near(self, other: Row) -> bool {
        let near =
            |a: f64, b: f64, rounded: u64| (a - b).abs() <= 0.01 * b.abs() + 0.001 * rounded as f64;
        near(self.count as f64, other.count as f64, 0)
            && near(self.total_ms, other.total_ms, other.count)
            && near(self.maximum_ms, other.maximum_ms, 1)
    }
}

/// Rows by thread.
pub type Sums = BTreeMap<i32, Row>;

pub fn sums<'a>(waits: impl Iterator<Item = &'a Wait>) -> Sums {
    let mut sums = Sums::new();
    for wait in waits {
        let row = sums.entry(wait.pid).or_default();
        row.add(wait.length_ns() as f64 / 1e6);
    }
    sums
}

/// The number before "ms" in a column: "avg:  78.694 ms".
fn milliseconds(column: &str) -> f64 {
    let number = column.trim_start_matches(|c: char| !c.is_ascii_digit());
    number.trim_end_matches("ms").trim().parse().unwrap()
}

/// Delays by thread, from `perf sched latency -p`.
pub fn perf_latency(text: &str) -> Sums {
    let rows = text.lines().filter(|line| line.contains("| avg:"));
    rows.map(|row| {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let pid = columns[0].rsplit(':').next().unwrap().parse().unwrap();
        (pid, average_row(columns[2], columns[3], columns[4]))
    })
    .collect()
}

/// Queue delays by work function, from `perf kwork latency`, which has a row for each item and CPU.
pub fn perf_kwork(text: &str) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains("(w)")) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = columns[0].trim_start_matches("(w)").to_owned();
        let row = average_row(columns[3], columns[2], columns[4]);
        rows.entry(name).or_default().join(row);
    }
    rows
}

fn average_row(count: &str, average: &str, maximum: &str) -> Row {
    let count = count.parse().unwrap();
    Row {
        count,
        total_ms: count as f64 * milliseconds(average),
        maximum_ms: milliseconds(maximum),
    }
}

/// Delays of the threads that waited, from `perf sched timehist`, which prints a line for each run
/// of a thread.
pub fn perf_timehist(text: &str) -> Sums {
    let mut delays = Sums::new();
    // "time [cpu] name[tid/pid] wait delay run": names may contain spaces; idle time has no number.
    for line in text.lines().filter(|line| line.matches(']').count() > 1) {
        let (head, numbers) = line.trim_end().rsplit_once(']').unwrap();
        let numbers: Vec<f64> = numbers
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        let tid = head.rsplit('[').next().unwrap().split('/').next().unwrap();
        let tid: i32 = tid.parse().unwrap();
        let [_, delay, _] = numbers[..] else {
            panic!("three numbers: {line}")
        };
        if delay > 0.0 {
            delays.entry(tid).or_default().add(delay);
        }
    }
    delays
}

/// A switch in the trace: time, CPU, previous thread, its state, next thread.
pub type Switch = (u64, u32, i32, TaskState, i32);

pub fn switches(trace: &Trace) -> impl Iterator<Item = Switch> + '_ {
    trace.events.iter().filter_map(|event| match event.kind {
        Kind::Switch {
            prev,
            prev_state,
            next,
        } => Some((event.time_ns, event.cpu, prev.pid, prev_state, next.pid)),
        _ => None,
    })
}

/// When each thread left a CPU, and how.
fn leavings(trace: &Trace) -> BTreeMap<i32, Vec<(u64, TaskState)>> {
    let mut leavings: BTreeMap<i32, Vec<_>> = BTreeMap::new();
    for (time, _, prev, state, _) in switches(trace) {
        leavings.entry(prev).or_default().push((time, state));
    }
    leavings
}

/// How the run after a wait ended, if it did; `timehist` prints a line when a run ends.
pub fn run_ends(trace: &Trace) -> impl Fn(&Wait) -> Option<TaskState> {
    let leavings = leavings(trace);
    move |wait| {
        let own = leavings.get(&wait.pid)?;
        let end = own.partition_point(|(time, _)| *time <= wait.end_ns);
        Some(own.get(end)?.1)
    }
}

/// How the thread left its CPU at the moment when a wait begins, if it did.
pub fn left(trace: &Trace) -> impl Fn(&Wait) -> Option<TaskState> {
    let leavings = leavings(trace);
    move |wait| {
        let own = leavings.get(&wait.pid)?;
        let at = own.binary_search_by_key(&wait.start_ns, |(time, _)| *time);
        Some(own[at.ok()?].1)
    }
}

/// Delays in `timehist` for runs whose beginning is not traced: some kernels omit a switch, so the
/// trace shows a thread leaving a CPU that it did not enter. `timehist` assumes that the thread has
/// run since the last switch written on that CPU; if the thread was runnable before that switch,
/// `timehist` shows a delay until then, while here such a run ends no wait. The last value is
/// whether the thread had been preempted.
pub fn delays_of_unseen(trace: &Trace) -> Vec<(i32, u64, bool)> {
    let (mut last, mut ready, mut delays) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for event in &trace.events {
        match event.kind {
            Kind::Wake {
                wake: Wake::Begins,
                task,
                ..
            } => {
                ready.entry(task.pid).or_insert((event.time_ns, false));
            }
            Kind::Switch {
                prev,
                prev_state,
                next,
            } => {
                let (prev_pid, next_pid) = (prev.pid, next.pid);
                let since = ready.remove(&prev_pid);
                if let Some((time, next)) = last.insert(event.cpu, (event.time_ns, next_pid))
                    && next != prev_pid
                    && prev_pid > 0
                {
                    let delay = since.and_then(|(since, preempted)| {
                        Some((prev_pid, u64::checked_sub(time, since)?, preempted))
                    });
                    delays.extend(delay);
                }
                if prev_state.is_runnable() {
                    ready.insert(prev_pid, (event.time_ns, true));
                }
            }
            _ => {}
        }
    }
    delays
}

/// The times at which newly created threads become runnable.
pub fn begin_new(trace: &Trace) -> impl Iterator<Item = (i32, u64)> + '_ {
    trace.events.iter().filter_map(|event| match event.kind {
        Kind::Wake {
            wake: Wake::New,
            task,
            ..
        } => Some((task.pid, event.time_ns)),
        _ => None,
    })
}

/// Threads that run before any wake-up that `knows` accepts: `latency` shows a delay of 0 for them.
pub fn begin_running(trace: &Trace, knows: impl Fn(Wake) -> bool) -> BTreeSet<i32> {
    let (mut known, mut begin) = (BTreeSet::new(), BTreeSet::new());
    for event in &trace.events {
        match event.kind {
            Kind::Wake { task, wake, .. } if knows(wake) => {
                known.insert(task.pid);
            }
            Kind::Switch { prev, next, .. } => {
                known.insert(prev.pid);
                if known.insert(next.pid) {
                    begin.insert(next.pid);
                }
            }
            _ => {}
        }
    }
    begin
}

/// Threads whose first event is a wake-up: they went to sleep before the recording began, or their
/// earlier events are not read here.
pub fn begin_asleep(trace: &Trace) -> HashSet<i32> {
    let (mut known, mut begin) = (HashSet::new(), HashSet::new());
    for event in &trace.events {
        match event.kind {
            Kind::Wake { task, wake, .. } => {
                let is_new = known.insert(task.pid);
                if is_new && wake == Wake::Begins {
                    begin.insert(task.pid);
                }
            }
            Kind::Switch { prev, next, .. } => known.extend([prev.pid, next.pid]),
            _ => {}
        }
    }
    begin
}
