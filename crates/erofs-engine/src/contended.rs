//! Whether other programs keep the CPUs busy, and what follows from it for the workers.
//!
//! A real-time worker answers at once while the CPUs are contended; on an idle machine the reader
//! that it wakes is moved to another CPU, which costs more than it gains. `hipri=auto` is therefore
//! real-time only while it is contended. A request is shared with other CPUs more readily while
//! they are idle.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cpu_workers::{Contention, Mode, Priority, Workers};

use crate::options::Hipri;

/// Looks at the load when something is asked of the engine.
#[derive(Debug)]
pub(crate) struct Contended {
    /// A. Threads of ours that run now.
    busy: AtomicUsize,
    /// I. None where there are no workers, or the kernel does not tell.
    contention: Option<Contention>,
    /// I. Whose priority follows.
    followers: Option<Arc<Workers>>,
    /// L. Threads that are no workers and have their priority, by number.
    others: Mutex<Vec<i32>>,
}

impl Contended {
    /// With what was opened before, for `workers`; `hipri` says whether their priority follows.
    pub(crate) fn new(
        workers: Option<&Arc<Workers>>,
        hipri: Hipri,
        opened: Option<io::Result<Contention>>,
        notices: &mut Vec<String>,
    ) -> Self {
        let adapts = |workers: &Workers| hipri == Hipri::Auto && workers.mode() == Mode::PerCpu;
        let followers = workers.filter(|workers| adapts(workers)).cloned();
        if let (Some(Err(error)), true) = (&opened, followers.is_some()) {
            notices.push(format!(
                "hipri=auto: it cannot be told whether the CPUs are busy ({error}); workers stay \
                 at normal priority"
            ));
        }
        Self {
            busy: AtomicUsize::new(0),
            contention: opened.and_then(Result::ok),
            followers,
            others: Mutex::default(),
        }
    }

    /// From now on a thread has the priority of the workers, until it says that it ends.
    pub(crate) fn follow(&self, workers: &Workers, hipri: Hipri, thread: i32) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.push(thread);
        let raised = hipri == Hipri::On || (self.followers.is_some() && self.contended());
        if raised {
            // What is refused to it was refused to the workers, whose notice tells.
            let _ = workers.set_priority_of(thread, Priority::High);
        }
    }

    pub(crate) fn unfollow(&self, thread: i32) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.retain(|&other| other != thread);
    }

    /// Counts the calling thread as busy for us, and looks.
    pub(crate) fn enter(&self) -> Busy<'_> {
        let now = self.busy.fetch_add(1, Ordering::Relaxed) + 1;
        self.look(now);
        Busy {
            busy: &self.busy,
            now,
        }
    }

    /// Counts a thread among those that ask us, and looks.
    pub(crate) fn asked_by(&self, thread: u32) {
        if let Some(contention) = &self.contention {
            contention.asked_by(thread);
            self.look(self.busy.load(Ordering::Relaxed) + 1);
        }
    }

    /// Whether other programs keep the CPUs busy now.
    pub(crate) fn contended(&self) -> bool {
        self.contention.as_ref().is_some_and(Contention::contended)
    }

    fn look(&self, own: usize) {
        let Some(contention) = &self.contention else {
            return;
        };
        if let (Some(contended), Some(workers)) = (contention.look(own), &self.followers) {
            let priority = match contended {
                true => Priority::High,
                false => Priority::Normal,
            };
            // A refusal is among the notices of the workers, and changes nothing else.
            let _ = workers.set_priority(None, priority);
            let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            for &thread in &*others {
                let _ = workers.set_priority_of(thread, priority);
            }
        }
    }
}

/// A thread that is busy for the engine, until it is dropped.
#[derive(Debug)]
pub struct Busy<'e> {
    busy: &'e AtomicUsize,
    /// How many there were when this one came, itself included.
    pub(crate) now: usize,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }
}
