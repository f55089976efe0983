//! Summarizes waits by thread, by thread name, by process or by work queue.

use super::filter::Filter;
use super::report::{Report, Wait, WaitKind, WorkRun};
use super::validity::Tally;
use crate::stats::Summary;
use crate::{Comm, Name};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

/// How waits are grouped into rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupBy {
    /// One thread.
    Task,
    /// All threads with the same name.
    Comm,
    /// All threads of one process; a thread whose process the trace does not name forms its own
    /// group.
    Process,
    /// One work queue and function; waits of other threads are left out.
    Workqueue,
}

/// The waits of one row. Times are microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The latest name of the thread; for a process, the name of its first thread.
    pub comm: Comm,
    /// The thread or process; for several threads of one name, their lowest pid.
    pub pid: i32,
    /// Number of threads that waited.
    pub threads: usize,
    /// The work queue, if rows are work queues and its name is known.
    pub workqueue: Option<Name>,
    /// The work function, if rows are work queues.
    pub function: Option<Name>,
    /// Waits after wake-ups; for a work queue, those that its workers had before or inside these
    /// items.
    pub wakeup: Summary,
    /// Waits after preemptions; for a work queue, those of workers that were executing these items.
    pub preempted: Summary,
    /// Executions of a work queue's items that started in the trace.
    pub executed: u64,
    /// Time from queueing an item to its start; never added to the waits.
    pub queue_delay: Summary,
    /// Time from start to end of an item.
    pub run: Summary,
    /// Whether the figures of this row may be relied on; may be false even in a valid table.
    pub valid: bool,
}

impl Group {
    /// Sum of both kinds of waits, in microseconds.
    pub fn total_us(&self) -> f64 {
        self.wakeup.total + self.preempted.total
    }
}

/// Lengths collected for one group, in nanoseconds.
#[derive(Default)]
struct Bin {
    comm: Comm,
    pids: BTreeSet<i32>,
    wakeup: Vec<u64>,
    preempted: Vec<u64>,
    queued: Vec<u64>,
    run: Vec<u64>,
    executed: u64,
}

impl Bin {
    fn add(&mut self, wait: &Wait) {
        self.comm = wait.comm;
        self.pids.insert(wait.pid);
        match wait.kind {
            WaitKind::Wakeup => self.wakeup.push(wait.length_ns()),
            WaitKind::Preempted => self.preempted.push(wait.length_ns()),
        }
    }
}

/// The key that distinguishes groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Task(i32, u32),
    Comm(Comm),
    Process(i32),
    Work(Option<Name>, Name),
}

impl Report {
    /// The waits that the filter accepts.
    pub fn accepted<'a>(&'a self, filter: &'a Filter<'_>) -> impl Iterator<Item = &'a Wait> {
        self.waits.iter().filter(|wait| filter.accepts(self, wait))
    }

    /// The work items that the filter accepts.
    pub fn accepted_works<'a>(
        &'a self,
        filter: &'a Filter<'_>,
    ) -> impl Iterator<Item = &'a WorkRun> {
        let works = self.works.iter();
        works.filter(|work| filter.accepts_work(self, work))
    }

    /// Whether the filter selects anything: a wait, even one that outlasts the trace, or a work
    /// item. Without a filter this is always true.
    pub fn selects(&self, filter: &Filter<'_>) -> bool {
        let open = || {
            self.unfinished
                .iter()
                .any(|wait| filter.accepts(self, wait))
        };
        let work = || self.accepted_works(filter).next().is_some();
        filter.accepts_all() || self.accepted(filter).next().is_some() || open() || work()
    }

    /// Summaries by thread, name, process or work queue, longest total first.
    pub fn group(&self, by: GroupBy, filter: &Filter<'_>) -> Vec<Group> {
        let mut bins: HashMap<Key, Bin> = HashMap::new();
        for wait in self.accepted(filter) {
            let key = match by {
                GroupBy::Task => Key::Task(wait.pid, wait.life),
                GroupBy::Comm => Key::Comm(wait.comm),
                GroupBy::Process => Key::Process(self.process(wait.pid).unwrap_or(wait.pid)),
                GroupBy::Workqueue => match wait.function {
                    Some(function) => Key::Work(wait.workqueue, function),
                    None => continue,
                },
            };
            bins.entry(key).or_default().add(wait);
        }
        if by == GroupBy::Workqueue {
            self.add_works(&mut bins, filter);
        }
        let (readable, tally) = (self.is_readable(filter), Tally::of(self));
        let groups = bins.into_iter().map(|(key, bin)| {
            let valid = readable && tally.is_whole(&bin.pids);
            self.summarize(key, bin, valid)
        });
        let mut groups: Vec<Group> = groups.collect();
        groups.sort_by(|a, b| {
            let function = |group: &Group| group.function.map(|name| self.names.get(name));
            let totals = b.total_us().total_cmp(&a.total_us());
            totals.then_with(|| (a.pid, function(a)).cmp(&(b.pid, function(b))))
        });
        groups
    }

    /// Summaries by work queue and function, with the queue delay separate from the waits.
    pub fn workqueues(&self, filter: &Filter<'_>) -> Vec<Group> {
        self.group(GroupBy::Workqueue, filter)
    }

    /// The `count` longest waits, longest first.
    pub fn worst(&self, count: usize, filter: &Filter<'_>) -> Vec<Wait> {
        let mut waits: Vec<Wait> = self.accepted(filter).copied().collect();
        waits.sort_by_key(|wait| (Reverse(wait.length_ns()), wait.start_ns));
        waits.truncate(count);
        waits
    }

    fn add_works(&self, bins: &mut HashMap<Key, Bin>, filter: &Filter<'_>) {
        for work in self.accepted_works(filter) {
            let bin = bins
                .entry(Key::Work(work.workqueue, work.function))
                .or_default();
            let delay = work
                .queued_ns
                .map(|queued| work.start_ns.saturating_sub(queued));
            let run = work.end_ns.map(|end| end.saturating_sub(work.start_ns));
            bin.queued.extend(delay);
            bin.run.extend(run);
            bin.executed += 1;
        }
    }

    fn summarize(&self, key: Key, bin: Bin, valid: bool) -> Group {
        let first = bin.pids.first().copied().unwrap_or_default();
        let (pid, comm) = match key {
            Key::Process(pid) => (pid, self.comm(pid)),
            _ => (first, bin.comm),
        };
        let (workqueue, function) = match key {
            Key::Work(workqueue, function) => (workqueue, Some(function)),
            _ => (None, None),
        };
        Group {
            comm: if comm.is_empty() { bin.comm } else { comm },
            pid,
            threads: bin.pids.len(),
            workqueue,
            function,
            wakeup: Summary::of_ns(&bin.wakeup),
            preempted: Summary::of_ns(&bin.preempted),
            executed: bin.executed,
            queue_delay: Summary::of_ns(&bin.queued),
            run: Summary::of_ns(&bin.run),
            valid,
        }
    }
}
