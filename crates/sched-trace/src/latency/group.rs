//! Summarizes waits by thread, by thread name or by work queue.

use super::filter::Filter;
use super::report::{Report, Wait, WaitKind};
use crate::stats::Summary;
use crate::{Comm, Name};
use std::collections::HashMap;

/// What a row of waits stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// One thread.
    Task,
    /// All threads of one name.
    Comm,
    /// All threads of one process; a thread whose process the trace does not name is alone.
    Process,
    /// One work queue and function; waits of other threads are left out.
    Workqueue,
}

/// The waits of one thread or of threads of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The name (its last one), of a process that of its first thread.
    pub comm: Comm,
    /// The thread or process; the lowest pid of several threads of one name.
    pub pid: i32,
    /// Number of threads.
    pub threads: usize,
    /// Work queue, where grouped by it.
    pub workqueue: Option<Name>,
    /// Function, where grouped by it.
    pub function: Option<Name>,
    /// Waits after wake-ups, in microseconds.
    pub wakeup: Summary,
    /// Waits after preemptions, in microseconds.
    pub preempted: Summary,
}

impl Group {
    /// Sum of both kinds of waits, in microseconds.
    pub fn total_us(&self) -> f64 {
        self.wakeup.total + self.preempted.total
    }
}

/// The waits for the items of one work queue and function, and their queue delay. Times are
/// microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkGroup {
    /// The work queue, where known.
    pub workqueue: Option<Name>,
    /// The function its items execute.
    pub function: Name,
    /// Executions that started in the trace.
    pub executed: u64,
    /// Waits of workers after wake-ups, for these items.
    pub wakeup: Summary,
    /// Waits of workers after preemptions, while executing these items.
    pub preempted: Summary,
    /// From queueing to start; never added to the waits.
    pub queue_delay: Summary,
    /// From start to end.
    pub run: Summary,
}

/// Collected lengths of one group, in nanoseconds.
#[derive(Default)]
struct Bin {
    comm: Comm,
    pids: Vec<i32>,
    wakeup: Vec<u64>,
    preempted: Vec<u64>,
    queued: Vec<u64>,
    run: Vec<u64>,
    executed: u64,
}

impl Bin {
    fn add(&mut self, wait: &Wait) {
        self.comm = wait.comm;
        if self.pids.last() != Some(&wait.pid) {
            self.pids.push(wait.pid);
        }
        match wait.kind {
            WaitKind::Wakeup => self.wakeup.push(wait.length_ns()),
            WaitKind::Preempted => self.preempted.push(wait.length_ns()),
        }
    }
}

impl Report {
    /// Summaries by thread, by name or by work queue, longest total first.
    pub fn group(&self, by: GroupBy, filter: &Filter<'_>) -> Vec<Group> {
        waits(self, by, filter)
    }

    /// Summaries by work queue and function, with the queue delay separate from the waits.
    pub fn workqueues(&self, filter: &Filter<'_>) -> Vec<WorkGroup> {
        works(self, filter)
    }

    /// The `count` longest waits, longest first.
    pub fn worst(&self, count: usize, filter: &Filter<'_>) -> Vec<Wait> {
        let waits = self.waits.iter().filter(|wait| filter.accepts(self, wait));
        let mut waits: Vec<Wait> = waits.copied().collect();
        waits.sort_by_key(|wait| (std::cmp::Reverse(wait.length_ns()), wait.start_ns));
        waits.truncate(count);
        waits
    }
}

/// What distinguishes groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Task(i32, u32),
    Comm(Comm),
    Process(i32),
    Work(Option<Name>, Option<Name>),
}

fn waits(report: &Report, by: GroupBy, filter: &Filter<'_>) -> Vec<Group> {
    let mut bins: HashMap<Key, Bin> = HashMap::new();
    for wait in report
        .waits
        .iter()
        .filter(|wait| filter.accepts(report, wait))
    {
        let key = match by {
            GroupBy::Task => Key::Task(wait.pid, wait.life),
            GroupBy::Comm => Key::Comm(wait.comm),
            GroupBy::Process => Key::Process(report.process(wait.pid).unwrap_or(wait.pid)),
            GroupBy::Workqueue if wait.function.is_none() => continue,
            GroupBy::Workqueue => Key::Work(wait.workqueue, wait.function),
        };
        bins.entry(key).or_default().add(wait);
    }
    let mut groups: Vec<Group> = bins
        .into_iter()
        .map(|(key, bin)| group(report, key, bin))
        .collect();
    groups.sort_by(|a, b| {
        b.total_us()
            .total_cmp(&a.total_us())
            .then(a.pid.cmp(&b.pid))
    });
    groups
}

fn group(report: &Report, key: Key, mut bin: Bin) -> Group {
    bin.pids.sort_unstable();
    bin.pids.dedup();
    let (workqueue, function) = match key {
        Key::Work(workqueue, function) => (workqueue, function),
        _ => (None, None),
    };
    let first = bin.pids.first().copied().unwrap_or_default();
    let (pid, comm) = match key {
        Key::Process(pid) => (pid, report.comm(pid)),
        _ => (first, bin.comm),
    };
    Group {
        comm: if comm.is_empty() { bin.comm } else { comm },
        pid,
        threads: bin.pids.len(),
        workqueue,
        function,
        wakeup: Summary::of_ns(&bin.wakeup),
        preempted: Summary::of_ns(&bin.preempted),
    }
}

fn works(report: &Report, filter: &Filter<'_>) -> Vec<WorkGroup> {
    let mut bins: HashMap<(Option<Name>, Name), Bin> = HashMap::new();
    for work in report
        .works
        .iter()
        .filter(|work| filter.accepts_work(report, work))
    {
        let bin = bins.entry((work.workqueue, work.function)).or_default();
        bin.executed += 1;
        bin.queued.extend(
            work.queued_ns
                .map(|queued| work.start_ns.saturating_sub(queued)),
        );
        bin.run
            .extend(work.end_ns.map(|end| end.saturating_sub(work.start_ns)));
    }
    for wait in &report.waits {
        let Some(function) = wait.function else {
            continue;
        };
        if filter.accepts(report, wait) {
            bins.entry((wait.workqueue, function))
                .or_default()
                .add(wait);
        }
    }
    let mut groups: Vec<WorkGroup> = bins
        .into_iter()
        .map(|(key, bin)| work_group(key, bin))
        .collect();
    groups.sort_by(|a, b| {
        let total = |g: &WorkGroup| g.wakeup.total + g.preempted.total;
        total(b).total_cmp(&total(a)).then_with(|| {
            report
                .names
                .get(a.function)
                .cmp(report.names.get(b.function))
        })
    });
    groups
}

fn work_group((workqueue, function): (Option<Name>, Name), bin: Bin) -> WorkGroup {
    WorkGroup {
        workqueue,
        function,
        executed: bin.executed,
        wakeup: Summary::of_ns(&bin.wakeup),
        preempted: Summary::of_ns(&bin.preempted),
        queue_delay: Summary::of_ns(&bin.queued),
        run: Summary::of_ns(&bin.run),
    }
}
