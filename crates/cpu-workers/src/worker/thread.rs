//! One worker: the loop of its thread, and its interface to other threads.
//!
//! How a worker ends, so that no job is lost:
//! 1. Its slot is emptied after all threads inside `Slot::read` have queued their jobs
//!    (`Slot::unpublish`).
//! 2. Its queue is closed, which wakes the worker. A later push returns the job, which then goes to
//!    the unbound pool.
//! 3. The worker takes the queued jobs in order and runs them.
//! 4. The queue returns `Closed`: the worker closes its mailbox, drops its source and returns.
//! 5. Its thread is joined.

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use sys::pi_mutex::PiMutex;

use crate::EventSourceFactory;
use crate::priority::ThreadPriority;
use crate::stats::counters::{Counters, count};
use crate::stats::notices::Notices;
use crate::worker::attached_source::{AttachedSource, Waited, message};
use crate::worker::parker::Parker;
use crate::worker::queue::{JobQueue, Taken};
use sys::clock::now_ns;

/// Where and when a job runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerContext {
    /// The CPU that this worker is pinned to; `None` on a thread of the unbound pool.
    pub cpu: Option<usize>,
    /// CLOCK_MONOTONIC in ns when the job was queued.
    pub queued_ns: u64,
    /// CLOCK_MONOTONIC in ns when the job started.
    pub started_ns: u64,
}

/// One job. The argument holds the CPU and the times of the job's run.
pub type Job = Box<dyn FnOnce(&WorkerContext) + Send>;

/// Maximum number of jobs in a row before a worker polls its event source, so that neither starves.
const JOBS_IN_A_ROW: u32 = 8;

pub(crate) struct Queued {
    pub(crate) job: Job,
    pub(crate) queued_ns: u64,
}

/// State shared by a worker's thread and its owners.
pub(crate) struct Worker {
    /// Fixed at creation.
    pub(crate) name: String,
    /// Fixed at creation. `None` for a thread of the unbound pool.
    pub(crate) cpu: Option<usize>,
    /// Fixed at creation. A pinned worker has a queue of its own; all threads of the unbound pool
    /// share one.
    pub(crate) queue: Arc<JobQueue<Queued>>,
    pub(crate) parker: Arc<Parker>,
    /// Atomic. The counters belong to the CPU, so they outlive this worker.
    pub(crate) counters: Arc<Counters>,
    /// Fixed at creation.
    pub(crate) notices: Arc<Notices>,
    /// Guarded as described at `ThreadPriority`.
    pub(crate) priority: ThreadPriority,
    /// Guarded by its own lock. Sources to open; `None` once the worker has ended.
    mailbox: PiMutex<Option<Vec<Attach>>>,
    /// Atomic. Whether the mailbox has entries. Written under the mailbox's lock.
    has_letters: AtomicBool,
}

/// A source to open, and where to send the result.
pub(crate) struct Attach {
    pub(crate) make: Arc<EventSourceFactory>,
    pub(crate) reply: Option<Sender<io::Result<()>>>,
}

thread_local! {
    /// The worker of this thread.
    static CURRENT: RefCell<Option<Arc<Worker>>> = const { RefCell::new(None) };
}

/// The worker whose thread is the calling one.
pub(crate) fn current_worker() -> Option<Arc<Worker>> {
    CURRENT.with_borrow(Option::clone)
}

/// Counts `work` as one request served by the calling worker: `stats()` reports the run time, and
/// the worker does not count as idle while `work` runs. On other threads this only runs `work`.
/// Event sources call this for each request.
pub fn serve<R>(work: impl FnOnce() -> R) -> R {
    CURRENT.with_borrow(|current| match current {
        Some(worker) => worker.serve(work),
        None => work(),
    })
}

impl Worker {
    pub(crate) fn new(
        name: String,
        cpu: Option<usize>,
        queue: Arc<JobQueue<Queued>>,
        counters: Arc<Counters>,
        notices: Arc<Notices>,
    ) -> Self {
        let (parker, mailbox) = (Parker::new(), PiMutex::new(Some(Vec::new())));
        Worker {
            name,
            cpu,
            queue,
            parker,
            counters,
            notices,
            priority: ThreadPriority::default(),
            mailbox,
            has_letters: AtomicBool::new(false),
        }
    }

    fn serve<R>(&self, work: impl FnOnce() -> R) -> R {
        let outer = self.parker.set_serving(true);
        let started = now_ns();
        let result = work();
        self.counters.run.record(now_ns().saturating_sub(started));
        count(&self.counters.served);
        self.parker.set_serving(outer);
        result
    }

    /// Whether the worker has nothing to do. Only a hint; takes no lock.
    pub(crate) fn is_free(&self) -> bool {
        // The order matters: a job just taken from the queue already counts as being served.
        self.queue.len() == 0 && !self.parker.is_serving()
    }

    /// Asks the worker to open a source; returns false if the worker has ended.
    pub(crate) fn post(&self, attach: Attach) -> bool {
        let mut mailbox = self.mailbox.lock();
        let Some(letters) = mailbox.as_mut() else {
            return false;
        };
        letters.push(attach);
        self.has_letters.store(true, Ordering::Release);
        drop(mailbox);
        self.parker.unpark();
        true
    }

    /// Runs the worker until its queue is closed and empty.
    pub(crate) fn run(self: &Arc<Self>) {
        CURRENT.set(Some(Arc::clone(self)));
        let mut source = None;
        let mut in_a_row = 0;
        loop {
            self.open_sources(&mut source);
            match self.queue.take(&self.parker) {
                Taken::Item(queued) => {
                    // A finished reply must not wait for the job.
                    if let Some(open) = &mut source {
                        open.flush();
                    }
                    self.run_job(queued);
                    in_a_row += 1;
                    if in_a_row >= JOBS_IN_A_ROW {
                        in_a_row = 0;
                        self.pass(&mut source, AttachedSource::poll);
                    }
                }
                Taken::Idle => {
                    in_a_row = 0;
                    self.sleep(&mut source);
                    if self.queue.leave_idle(&self.parker) {
                        count(&self.counters.wakeups);
                    }
                }
                Taken::Closed => break,
            }
        }
        // This drops the senders of all outstanding replies, which ends the wait of a thread that
        // expects one.
        *self.mailbox.lock() = None;
        self.parker.set_waker(None);
        drop(source);
        CURRENT.set(None);
    }

    /// Sleeps, registered as idle, until something other than requests at the source may need
    /// attention; requests are served without taking a lock.
    fn sleep(&self, source: &mut Option<AttachedSource>) {
        while source.is_some() {
            self.pass(source, AttachedSource::wait);
            if !self.parker.is_registered() || self.has_letters.load(Ordering::Acquire) {
                return;
            }
        }
        self.parker.park();
    }

    fn run_job(&self, Queued { job, queued_ns }: Queued) {
        let started_ns = now_ns();
        let context = WorkerContext {
            cpu: self.cpu,
            queued_ns,
            started_ns,
        };
        let result = catch_unwind(AssertUnwindSafe(|| job(&context)));
        self.parker.set_serving(false);
        let (run, delay) = (&self.counters.run, &self.counters.queue_delay);
        run.record(now_ns().saturating_sub(started_ns));
        delay.record(started_ns.saturating_sub(queued_ns));
        count(&self.counters.jobs);
        if let Err(panic) = result {
            self.report_panic("a job", &message(&*panic));
        }
    }

    /// Opens the posted sources. A new source replaces an older one.
    fn open_sources(&self, source: &mut Option<AttachedSource>) {
        let letters = match self.mailbox.lock().as_mut() {
            Some(letters) if !letters.is_empty() => {
                self.has_letters.store(false, Ordering::Relaxed);
                std::mem::take(letters)
            }
            _ => return,
        };
        for letter in letters {
            let result = AttachedSource::open(&letter.make, self.cpu).map(|opened| {
                opened.connect(&self.parker);
                *source = Some(opened);
            });
            match (letter.reply, result) {
                // The receiver may be gone.
                (Some(reply), result) => drop(reply.send(result)),
                (None, Ok(())) => {}
                (None, Err(error)) => {
                    self.notices
                        .add(format!("{}: cannot open its source: {error}", self.name));
                }
            }
        }
    }

    fn pass(
        &self,
        source: &mut Option<AttachedSource>,
        how: fn(&mut AttachedSource, &Parker) -> Waited,
    ) {
        let Some(open) = source else { return };
        match how(open, &self.parker) {
            Waited::Continue => return,
            Waited::Panicked(message) => return self.report_panic("its source", &message),
            Waited::Broken(message) => self.report_panic("its source, now dropped,", &message),
            Waited::Closed => {}
        }
        self.parker.set_waker(None);
        *source = None;
    }

    fn report_panic(&self, what: &str, message: &str) {
        count(&self.counters.panics);
        self.notices
            .add(format!("{}: {what} panicked: {message}", self.name));
    }
}
