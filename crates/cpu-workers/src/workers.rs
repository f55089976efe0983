//! The set of workers.

use std::sync::Arc;

use crate::{Error, MakeSource, Priority, WorkerOptions, WorkerStats};

/// One piece of work. It gets told where it runs.
pub type Job = Box<dyn FnOnce(&WorkerContext) + Send>;

/// Where and when a job runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerContext {
    /// The CPU this worker is pinned to; `None` on a thread of the unbound pool.
    pub cpu: Option<usize>,
    /// CLOCK_MONOTONIC when the job was queued, ns.
    pub queued_ns: u64,
    /// CLOCK_MONOTONIC when the job started, ns.
    pub started_ns: u64,
}

/// All workers of one pool.
#[derive(Debug)]
pub struct Workers {}

impl Workers {
    /// Makes the unbound pool, the pinned workers and the watcher of hotplug.
    pub fn start(_options: WorkerOptions) -> Result<Arc<Workers>, Error> {
        todo!()
    }
    /// The one pool of this process for these options: made by the first caller, while others
    /// wait; ends with the last `Arc`.
    pub fn shared(_options: WorkerOptions) -> Result<Arc<Workers>, Error> {
        todo!()
    }
    /// Queues a job at the worker of `cpu`, or at the unbound pool (`None`, or an empty slot).
    /// Never blocks, never loses a job: after shutdown it runs on the caller's thread.
    pub fn queue(&self, _cpu: Option<usize>, _job: Job) {
        todo!()
    }
    /// The worker that the calling thread is, if it is one.
    pub fn current() -> Option<WorkerContext> {
        todo!()
    }
    /// A CPU whose worker sleeps and has nothing queued, other than `not`.
    pub fn idle_worker(&self, _not: Option<usize>) -> Option<usize> {
        todo!()
    }
    /// CPUs that have a worker now.
    pub fn cpus(&self) -> Vec<usize> {
        todo!()
    }
    /// One entry for each CPU that has or had a worker, then one for each unbound thread.
    pub fn stats(&self) -> Vec<WorkerStats> {
        todo!()
    }
    /// Lines to show the user: what was refused, what panicked.
    pub fn notices(&self) -> Vec<String> {
        todo!()
    }
    /// Gives every pinned worker (the unbound ones where there is none) a source, on its own
    /// thread; workers that come later get theirs when they start. Returns how many have one now.
    pub fn attach(&self, _make: Arc<MakeSource>) -> Result<usize, Error> {
        todo!()
    }
    /// Changes the priority of the worker of `cpu`, or of all of them (`None`), now and for those to come.
    pub fn set_priority(&self, _cpu: Option<usize>, _priority: Priority) -> Result<(), Error> {
        todo!()
    }
    /// Lets everything that is queued finish, then ends all threads.
    pub fn shutdown(&self) {
        todo!()
    }
}

/// Counts `work` as one request served by the worker that calls this, which does not pass for idle
/// meanwhile. On other threads it only runs `work`.
pub fn serve<R>(_work: impl FnOnce() -> R) -> R {
    todo!()
}
