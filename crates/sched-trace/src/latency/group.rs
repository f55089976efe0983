//! Waits summed up by thread, name or work queue.

use super::report::{Report, Wait, WaitKind, WorkRun};
use crate::stats::Summary;
use crate::{Comm, Name};
use std::collections::HashMap;

/// What waits are summed up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// Each thread by itself.
    Task,
    /// Threads of equal name together.
    Comm,
    /// Each work queue and function; waits of other threads are left out.
    Workqueue,
}

/// Which waits to look at; all of them by default.
#[derive(Default)]
pub struct Filter<'a> {
    /// Only waits that ended at or after this time and...
    pub from_ns: Option<u64>,
    /// ...before this one.
    pub until_ns: Option<u64>,
    /// Only threads whose name, or whose work queue or function, this accepts.
    pub name: Option<&'a dyn Fn(&str) -> bool>,
    /// Only these threads.
    pub pids: Option<&'a dyn Fn(i32) -> bool>,
}

impl std::fmt::Debug for Filter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter")
            .field("from_ns", &self.from_ns)
            .field("until_ns", &self.until_ns)
            .field("name", &self.name.is_some())
            .field("pids", &self.pids.is_some())
            .finish()
    }
}

impl Filter<'_> {
    /// Whether the wait is to be looked at.
    pub fn takes(&self, report: &Report, wait: &Wait) -> bool {
        let names = [wait.function, wait.workqueue];
        self.in_time(wait.end_ns)
            && self.pids.is_none_or(|pids| pids(wait.pid))
            && self
                .name
                .is_none_or(|name| name(&wait.comm.to_string()) || self.takes_names(report, &names))
    }

    /// Whether the work item is to be looked at.
    fn takes_work(&self, report: &Report, work: &WorkRun) -> bool {
        self.in_time(work.start_ns)
            && self.pids.is_none_or(|pids| pids(work.pid))
            && self.takes_names(report, &[Some(work.function), work.workqueue])
    }

    fn in_time(&self, time_ns: u64) -> bool {
        self.from_ns.is_none_or(|from| time_ns >= from)
            && self.until_ns.is_none_or(|until| time_ns < until)
    }

    fn takes_names(&self, report: &Report, names: &[Option<Name>]) -> bool {
        self.name.is_none_or(|accepts| {
            names
                .iter()
                .flatten()
                .any(|&n| accepts(report.names.get(n)))
        })
    }
}

/// The waits of one thread or of threads of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The name (the last one a thread had).
    pub comm: Comm,
    /// The thread; the lowest one where several of a name are summed up.
    pub pid: i32,
    /// How many different threads are in it.
    pub threads: usize,
    /// Work queue, where grouped by it.
    pub workqueue: Option<Name>,
    /// Function, where grouped by it.
    pub function: Option<Name>,
    /// Waits after wake-ups.
    pub wakeup: Summary,
    /// Waits after preemptions.
    pub preempted: Summary,
}

impl Group {
    /// Both kinds of waits, in microseconds: the total that the per-CPU-threads patch reports.
    pub fn total_us(&self) -> f64 {
        self.wakeup.total_us + self.preempted.total_us
    }
}

/// The waits for one work queue's items, and how long the items stood in the queue.
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
    /// Queued to started; never added to the waits.
    pub queue_delay: Summary,
    /// Started to ended.
    pub run: Summary,
}

/// Gathered lengths of one group.
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

/// What tells groups apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Task(i32, u32),
    Comm(Comm),
    Work(Option<Name>, Option<Name>),
}

pub(super) fn waits(report: &Report, by: GroupBy, filter: &Filter<'_>) -> Vec<Group> {
    let mut bins: HashMap<Key, Bin> = HashMap::new();
    for wait in report
        .waits
        .iter()
        .filter(|wait| filter.takes(report, wait))
    {
        let key = match by {
            GroupBy::Task => Key::Task(wait.pid, wait.life),
            GroupBy::Comm => Key::Comm(wait.comm),
            GroupBy::Workqueue if wait.function.is_none() => continue,
            GroupBy::Workqueue => Key::Work(wait.workqueue, wait.function),
        };
        bins.entry(key).or_default().add(wait);
    }
    let mut groups: Vec<Group> = bins.into_iter().map(|(key, bin)| group(key, bin)).collect();
    groups.sort_by(|a, b| {
        b.total_us()
            .total_cmp(&a.total_us())
            .then(a.pid.cmp(&b.pid))
    });
    groups
}

fn group(key: Key, mut bin: Bin) -> Group {
    bin.pids.sort_unstable();
    bin.pids.dedup();
    let (workqueue, function) = match key {
        Key::Work(workqueue, function) => (workqueue, function),
        _ => (None, None),
    };
    Group {
        comm: bin.comm,
        pid: bin.pids.first().copied().unwrap_or_default(),
        threads: bin.pids.len(),
        workqueue,
        function,
        wakeup: Summary::of(&mut bin.wakeup),
        preempted: Summary::of(&mut bin.preempted),
    }
}

pub(super) fn works(report: &Report, filter: &Filter<'_>) -> Vec<WorkGroup> {
    let mut bins: HashMap<(Option<Name>, Name), Bin> = HashMap::new();
    for work in report
        .works
        .iter()
        .filter(|work| filter.takes_work(report, work))
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
        if filter.takes(report, wait) {
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
        let total = |g: &WorkGroup| g.wakeup.total_us + g.preempted.total_us;
        total(b).total_cmp(&total(a)).then_with(|| {
            report
                .names
                .get(a.function)
                .cmp(report.names.get(b.function))
        })
    });
    groups
}

fn work_group((workqueue, function): (Option<Name>, Name), mut bin: Bin) -> WorkGroup {
    WorkGroup {
        workqueue,
        function,
        executed: bin.executed,
        wakeup: Summary::of(&mut bin.wakeup),
        preempted: Summary::of(&mut bin.preempted),
        queue_delay: Summary::of(&mut bin.queued),
        run: Summary::of(&mut bin.run),
    }
}
