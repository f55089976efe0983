//! Whether other programs keep the CPUs busy, and what follows from it for the workers.
//!
//! A real-time worker answers at once while the CPUs are contended; on an idle machine the reader
//! that it wakes is moved to another CPU, which costs more than it gains. `hipri=auto` is therefore
//! real-time only while it is contended. A request is shared with other CPUs more readily while
//! they are idle.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
        }
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
