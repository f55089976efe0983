//! Spawns a worker's thread. A partly initialised worker is never visible.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::Cpus;
use crate::faults::{self, FailPoint};
use crate::priority::{self, Wanted};
use crate::worker::thread::{Worker, current_worker};

/// A worker with its running thread.
pub(crate) struct Running {
    pub(crate) worker: Arc<Worker>,
    /// Fixed at creation.
    pub(crate) tid: i32,
    /// Guarded by its own lock, which the joining thread takes.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Parameters that all threads share.
pub(crate) struct Spawner {
    pub(crate) cpus: Arc<dyn Cpus>,
    /// Nice value of the thread that started the workers.
    pub(crate) base_nice: i32,
}

impl Spawner {
    /// Returns once the thread is named and pinned, has its priority, and is about to read its
    /// queue, or once it has ended because one of these steps failed. A refused priority is not a
    /// failure.
    pub(crate) fn spawn(&self, worker: Worker, wanted: Wanted) -> io::Result<Running> {
        faults::check(match worker.cpu {
            Some(cpu) => FailPoint::WorkerThread(cpu),
            None => FailPoint::UnboundThread(number(&worker.name)),
        })?;
        let worker = Arc::new(worker);
        let (ready, outcome) = channel();
        let inherits = worker.cpu.is_none() && current_worker().is_some();
        // A thread that a worker creates must not inherit the worker's priority.
        let wanted = match wanted {
            Wanted::Untouched if inherits => Wanted::Normal {
                nice: self.base_nice,
            },
            wanted => wanted,
        };
        let body = {
            let (worker, cpus) = (Arc::clone(&worker), Arc::clone(&self.cpus));
            move || {
                if inherits {
                    // If this fails, the pool still works, but on fewer CPUs than it may use.
                    let _ = cpus.unpin(priority::own_tid());
                }
                if settle(&worker, &*cpus, wanted, ready) {
                    worker.run();
                }
            }
        };
        let thread = thread::Builder::new()
            .name(worker.name.clone())
            .spawn(faults::inherited(body))?;
        let died = |_| Err(io::Error::other("the thread died while starting"));
        match outcome.recv().unwrap_or_else(died) {
            Ok(tid) => Ok(Running {
                worker,
                tid,
                thread: Mutex::new(Some(thread)),
            }),
            Err(error) => {
                // If the thread panicked, `error` already says that it died.
                let _ = thread.join();
                Err(error)
            }
        }
    }
}

/// Runs on the new thread: pins it, then sets its priority (after creation, as the kernel does for
/// its own workers).
fn settle(
    worker: &Worker,
    cpus: &dyn Cpus,
    wanted: Wanted,
    ready: Sender<io::Result<i32>>,
) -> bool {
    let tid = priority::own_tid();
    if let Some(cpu) = worker.cpu {
        let pinned = faults::check(FailPoint::Pin(cpu)).and_then(|()| cpus.pin(tid, cpu));
        if let Err(error) = pinned {
            let _ = ready.send(Err(error));
            return false;
        }
    }
    if let Err(line) = worker.priority.set(tid, wanted) {
        worker.notices.add(line);
    }
    ready.send(Ok(tid)).is_ok()
}

/// The number N in `NAME/uN`.
fn number(name: &str) -> usize {
    let digits = name.rsplit('u').next().unwrap_or_default();
    digits.parse().unwrap_or_default()
}

impl Running {
    /// Waits until the thread has ended. If the thread itself calls this, it ends later without
    /// being joined.
    pub(crate) fn join(&self) {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // The thread catches panics itself, so the result contains nothing of interest.
            let _ = thread.join();
        }
    }

    /// Steps 2 to 5 of the end of a worker (see `thread.rs`).
    pub(crate) fn end(&self) {
        self.worker.queue.close();
        self.join();
    }
}
