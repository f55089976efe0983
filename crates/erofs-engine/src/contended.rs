//! Whether programs wait for the CPUs, and what follows from it for the workers.
//!
//! A real-time worker answers at once while the CPUs are contended; on an idle machine the reader
//! that it wakes is moved to another CPU, which costs more than it gains. `hipri=auto` is therefore
//! real-time only while it is contended. A request is shared with other CPUs more readily while
//! they are idle.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cpu_workers::{Contention, Mode, Priority, Trigger, Workers};

use crate::options::Hipri;

/// Follows the pressure on the CPUs until it is dropped.
#[derive(Debug)]
pub(crate) struct Contended {
    /// A. Written by the watcher's thread.
    now: Arc<AtomicBool>,
    /// I. None where there are no workers, or the kernel does not tell.
    _watch: Option<Contention>,
}

impl Contended {
    /// Begins to watch for `workers`, and changes their priority where `hipri` leaves it open.
    pub(crate) fn watch(
        workers: Option<&Arc<Workers>>,
        hipri: Hipri,
        pressure: Option<io::Result<Trigger>>,
        notices: &mut Vec<String>,
    ) -> Self {
        let now = Arc::new(AtomicBool::new(false));
        let (Some(workers), Some(pressure)) = (workers, pressure) else {
            return Self { now, _watch: None };
        };
        let adapt = hipri == Hipri::Auto && workers.mode() == Mode::PerCpu;
        let (flag, followers) = (now.clone(), Arc::downgrade(workers));
        let changed = move |contended| {
            flag.store(contended, Ordering::Relaxed);
            if let Some(workers) = followers.upgrade().filter(|_| adapt) {
                let priority = if contended {
                    Priority::High
                } else {
                    Priority::Normal
                };
                // A refusal is among the notices of the workers, and changes nothing else.
                let _ = workers.set_priority(None, priority);
            }
        };
        let watch = pressure.and_then(|trigger| Contention::watch(trigger, changed));
        if let Err(error) = &watch
            && adapt
        {
            notices.push(format!(
                "hipri=auto: this kernel does not tell of CPU pressure ({error}); workers stay at \
                 normal priority"
            ));
        }
        Self {
            now,
            _watch: watch.ok(),
        }
    }

    /// Whether programs wait for the CPUs now.
    pub(crate) fn contended(&self) -> bool {
        self.now.load(Ordering::Relaxed)
    }
}
