//! Work items: from queued to executed, and which work queue they stood in.

use super::report::WorkRun;
use crate::{Name, Names};
use std::collections::HashMap;

/// A work item that stands in a queue.
struct Queued {
    time_ns: u64,
    function: Name,
    queue: Option<Name>,
}

/// Joins `queue_work`, `execute_start` and `execute_end` by the item's address and its worker.
#[derive(Default)]
pub(super) struct Works {
    runs: Vec<WorkRun>,
    queued: HashMap<u64, Queued>,
    /// Index of the run each worker is in.
    open: HashMap<i32, usize>,
    /// The one queue a function's items were seen on; `None` when there were several.
    home: HashMap<Name, Option<Name>>,
}

impl Works {
    /// Queueing an item that is queued already does nothing in the kernel, and is not traced.
    pub fn queue(&mut self, time_ns: u64, work: u64, function: Name, queue: Option<Name>) {
        if let Some(queue) = queue {
            let home = self.home.entry(function).or_insert(Some(queue));
            if *home != Some(queue) {
                *home = None;
            }
        }
        self.queued.insert(
            work,
            Queued {
                time_ns,
                function,
                queue,
            },
        );
    }

    /// The worker `run.pid` begins with an item; `run` lacks what its queueing told.
    pub fn start(&mut self, work: u64, mut run: WorkRun) {
        if let Some(queued) = self
            .queued
            .remove(&work)
            .filter(|q| q.function == run.function)
        {
            run.queued_ns = Some(queued.time_ns);
            run.workqueue = queued.queue.or(run.workqueue);
        }
        self.open.insert(run.pid, self.runs.len());
        self.runs.push(run);
    }

    /// The worker is done with its item.
    pub fn end(&mut self, time_ns: u64, pid: i32) {
        if let Some(index) = self.open.remove(&pid) {
            self.runs[index].end_ns = Some(time_ns);
        }
    }

    /// Function and work queue of the item `pid` is executing.
    pub fn current(&self, pid: i32) -> Option<(Name, Option<Name>)> {
        let run = &self.runs[*self.open.get(&pid)?];
        Some((run.function, run.workqueue))
    }

    /// The queue of a function whose item was queued before the trace began.
    pub fn home(&self, function: Name) -> Option<Name> {
        self.home.get(&function).copied().flatten()
    }

    /// All runs, with the queues filled in that only later events told.
    pub fn finish(mut self) -> (Vec<WorkRun>, impl Fn(Name) -> Option<Name>) {
        let mut runs = std::mem::take(&mut self.runs);
        for run in runs.iter_mut().filter(|run| run.workqueue.is_none()) {
            run.workqueue = self.home(run.function);
        }
        (runs, move |function| self.home(function))
    }
}

/// `erofs_worker/3` serves the queue "erofs_worker": a kthread_worker has no name but its threads'.
pub(super) fn worker_name(names: &mut Names, comm: &str) -> Option<Name> {
    let stem = comm.split('/').next().unwrap_or(comm);
    (!stem.is_empty()).then(|| names.intern(stem))
}
