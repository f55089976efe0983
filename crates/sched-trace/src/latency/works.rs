//! Joins the events of work items: queued, started, ended.

use super::report::{Wait, WorkRun};
use crate::{Event, Kind, Name, Names};
use std::collections::{HashMap, HashSet};

/// The executor of an item: a worker, or a CPU's softirq (BH work queues, Linux 6.9). A softirq may
/// interrupt any thread, whose waits have nothing to do with the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Runner {
    Worker(i32),
    Softirq(u32),
}

/// A queued work item.
struct Queued {
    time_ns: u64,
    by: i32,
    function: Name,
    queue: Option<Name>,
}

/// Matches `queue_work`, `execute_start` and `execute_end` by the address of the item and by its
/// worker.
#[derive(Default)]
pub(super) struct Works {
    runs: Vec<WorkRun>,
    queued: HashMap<u64, Queued>,
    /// Index of the current run of each worker.
    open: HashMap<Runner, usize>,
    /// The only queue on which items with this function were seen; `None` if there were several.
    home: HashMap<Name, Option<Name>>,
    /// Functions that softirqs execute: they are queued on BH queues, or start in the idle task.
    softirqs: HashSet<Name>,
    /// Workers that have gone to sleep, as they do between items, since they started their last
    /// item.
    rested: HashSet<i32>,
    /// Whether the trace has the ends of work queue items, and of kthread_worker items.
    ends: bool,
    kthread_ends: bool,
}

impl Works {
    /// Determines whether the trace has `execute_end` events. Without them, an item is taken to end
    /// when its worker sleeps without work or starts the next one.
    pub fn new(events: &[Event], names: &Names) -> Self {
        let is_bh = |queue: Name| names.get(queue).starts_with("events_bh");
        let softirqs = events.iter().filter_map(|event| match event.kind {
            Kind::WorkQueued {
                function,
                queue: Some(queue),
                ..
            } => is_bh(queue).then_some(function),
            Kind::WorkStart { function, .. } => (event.pid == 0).then_some(function),
            _ => None,
        });
        let ends = |wanted: bool| {
            let is_end = |event: &Event| matches!(event.kind, Kind::WorkEnd { kthread, .. } if kthread == wanted);
            events.iter().any(is_end)
        };
        Self {
            ends: ends(false),
            kthread_ends: ends(true),
            softirqs: softirqs.collect(),
            ..Self::default()
        }
    }

    /// Whether the trace has starts of work queue items, but not their ends.
    pub fn lacks_ends(&self) -> bool {
        !self.ends && self.runs.iter().any(|run| !run.kthread)
    }

    /// Notes that an item is queued. The kernel does not trace the queueing of an item that is
    /// already queued.
    pub fn queue(&mut self, time_ns: u64, by: i32, work: u64, function: Name, queue: Option<Name>) {
        if let Some(queue) = queue {
            let home = self.home.entry(function).or_insert(Some(queue));
            if *home != Some(queue) {
                *home = None;
            }
        }
        let queued = Queued {
            time_ns,
            by,
            function,
            queue,
        };
        self.queued.insert(work, queued);
    }

    /// Forgets queued and running items, because another recording begins.
    pub fn forget(&mut self) {
        self.queued.clear();
        self.open.clear();
        self.rested.clear();
    }

    /// The name of an item's work queue, if its queueing was seen.
    pub fn queue_of(&self, work: u64) -> Option<Name> {
        self.queued.get(&work)?.queue
    }

    /// Whether a softirq executes the work queue item that starts in a worker's thread: this is so
    /// if softirqs execute its function, or if the worker is still inside another item.
    pub fn interrupts(&self, pid: i32, function: Name) -> bool {
        let inside = || self.open.contains_key(&Runner::Worker(pid)) && !self.rested.contains(&pid);
        self.softirqs.contains(&function) || self.ends && inside()
    }

    /// Notes that an item starts; `run` lacks the data of the queueing event.
    pub fn start(&mut self, work: u64, runner: Runner, mut run: WorkRun) {
        let queued = self.queued.remove(&work);
        if let Some(queued) = queued.filter(|queued| queued.function == run.function) {
            run.queued_ns = Some(queued.time_ns);
            run.queued_by = Some(queued.by);
            run.workqueue = queued.queue.or(run.workqueue);
        }
        if let Runner::Worker(pid) = runner {
            self.rested.remove(&pid);
        }
        self.open.insert(runner, self.runs.len());
        self.runs.push(run);
    }

    /// Notes the end of the item that the softirq of this CPU executes or, if there is none, of
    /// this thread's item.
    pub fn end(&mut self, time_ns: u64, pid: i32, cpu: u32) {
        let softirq = self.open.remove(&Runner::Softirq(cpu));
        if let Some(index) = softirq.or_else(|| self.open.remove(&Runner::Worker(pid))) {
            self.runs[index].end_ns = Some(time_ns);
        }
    }

    /// Notes that a worker goes to sleep outside of any item. Unless the trace has the ends of
    /// items, the worker's last item has ended.
    pub fn sleep(&mut self, pid: i32) {
        self.rested.insert(pid);
        let (ends, kthread_ends) = (self.ends, self.kthread_ends);
        let has_end = |run: &WorkRun| if run.kthread { kthread_ends } else { ends };
        if self
            .open
            .get(&Runner::Worker(pid))
            .is_some_and(|index| !has_end(&self.runs[*index]))
        {
            self.open.remove(&Runner::Worker(pid));
        }
    }

    /// Function and work queue of the item `pid` is executing.
    pub fn current(&self, pid: i32) -> Option<(Name, Option<Name>)> {
        let run = &self.runs[*self.open.get(&Runner::Worker(pid))?];
        Some((run.function, run.workqueue))
    }

    /// Returns all runs. Runs and waits receive the work queues that only later events named.
    pub fn finish(self, waits: &mut [Wait]) -> Vec<WorkRun> {
        let home = |function: Name| self.home.get(&function).copied().flatten();
        for wait in waits.iter_mut().filter(|wait| wait.workqueue.is_none()) {
            wait.workqueue = wait.function.and_then(home);
        }
        let mut runs = self.runs;
        for run in runs.iter_mut().filter(|run| run.workqueue.is_none()) {
            run.workqueue = home(run.function);
        }
        runs
    }
}

/// `erofs_worker/3` serves the queue "erofs_worker": only the names of its threads tell which
/// kthread_worker it is.
pub(super) fn worker_name(names: &mut Names, comm: &str) -> Option<Name> {
    let stem = comm.split('/').next().unwrap_or(comm);
    (!stem.is_empty()).then(|| names.intern(stem))
}
