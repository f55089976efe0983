//! Policy for contended CPUs: what changes while other programs keep the CPUs busy.
//!
//! A real-time worker answers at once while the CPUs are contended. On an idle machine the reader
//! which it wakes is moved to another CPU, which costs more than real-time priority gains, so with
//! `hipri=auto` workers are real-time only under contention. A request is split over more CPUs
//! while they are idle.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use cpu_workers::{Mode, Priority, Workers};

use crate::load_monitor::LoadMonitor;
use crate::options::Hipri;
use crate::per_thread::PerThread;

/// Called when contention begins or ends.
pub type OnContention = Box<dyn Fn() + Send + Sync>;

/// Samples the load with each request and sets the priority of the workers.
pub(crate) struct CpuContention {
    /// A. For each thread, whether it runs for the engine now: how often [`Busy`] was begun and not
    /// ended.
    busy: PerThread<AtomicUsize>,
    /// I. `None` without workers, or if the load cannot be read.
    monitor: Option<LoadMonitor>,
    /// I. Workers with `hipri=auto`.
    followers: Option<Arc<Workers>>,
    /// Set at most once.
    changed: OnceLock<OnContention>,
}

impl CpuContention {
    /// `opened` is the load monitor opened before the sandbox; with `hipri=auto` it sets the
    /// priority of `workers`.
    pub(crate) fn new(
        workers: Option<&Arc<Workers>>,
        hipri: Hipri,
        opened: Option<io::Result<LoadMonitor>>,
        notices: &mut Vec<String>,
    ) -> Self {
        let adapts = |workers: &Workers| hipri == Hipri::Auto && workers.mode() == Mode::PerCpu;
        let followers = workers.filter(|workers| adapts(workers)).cloned();
        if let (Some(Err(error)), true) = (&opened, followers.is_some()) {
            notices.push(format!(
                "hipri=auto: the load of the CPUs is unknown ({error}); workers keep normal \
                 priority"
            ));
        }
        Self {
            busy: PerThread::new(),
            monitor: opened.and_then(Result::ok),
            followers,
            changed: OnceLock::new(),
        }
    }

    /// Sets what is called by a serving thread when contention begins or ends. Later calls have no
    /// effect.
    pub(crate) fn on_change(&self, changed: OnContention) {
        let _ = self.changed.set(changed);
    }

    /// Counts the calling thread as busy and samples the load.
    pub(crate) fn enter(&self) -> Busy<'_> {
        let own = self.busy.own();
        own.store(own.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.sample(0);
        Busy {
            own,
            of_this_thread: PhantomData,
        }
    }

    /// Records a client and samples the load.
    pub(crate) fn asked_by(&self, thread: u32) {
        if let Some(monitor) = &self.monitor {
            monitor.add_client(thread);
            self.sample(1);
        }
    }

    /// Threads of the engine which run now. Reads a line of every thread: not for each request.
    pub(crate) fn busy_threads(&self) -> usize {
        let busy = |own: &&AtomicUsize| own.load(Ordering::Relaxed) > 0;
        self.busy.all().filter(busy).count()
    }

    /// Whether other programs keep the CPUs busy now.
    pub(crate) fn contended(&self) -> bool {
        self.monitor.as_ref().is_some_and(LoadMonitor::contended)
    }

    /// `caller`: 1 for a thread that is not counted as busy.
    fn sample(&self, caller: usize) {
        let Some(monitor) = &self.monitor else {
            return;
        };
        let Some(contended) = monitor.poll(|| self.busy_threads() + caller) else {
            return;
        };
        if let Some(workers) = &self.followers {
            let priority = match contended {
                true => Priority::High,
                false => Priority::Normal,
            };
            // A refusal is among the notices of the workers.
            let _ = workers.set_priority(None, priority);
        }
        if let Some(changed) = self.changed.get() {
            changed();
        }
    }
}

impl fmt::Debug for CpuContention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuContention")
            .field("contended", &self.contended())
            .finish_non_exhaustive()
    }
}

/// A thread which works for the engine, until dropped.
#[derive(Debug)]
pub struct Busy<'e> {
    own: &'e AtomicUsize,
    /// Written by this thread alone.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let count = self.own.load(Ordering::Relaxed);
        self.own.store(count.saturating_sub(1), Ordering::Relaxed);
    }
}
