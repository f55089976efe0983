//! The thread that follows hotplug and the cpuset.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::Cpus;
use crate::faults::{self, FailPoint};
use crate::topology::pinned::Topology;

/// Not called as the workers are: traces match those by name.
const NAME: &str = "cpu_hotplug";

pub(crate) struct Watcher {
    /// Set at start.
    cpus: Arc<dyn Cpus>,
    /// Atomic.
    stop: Arc<AtomicBool>,
    /// Guarded by its own lock.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Watcher {
    pub(crate) fn start(
        topology: Arc<Topology>,
        cpus: Arc<dyn Cpus>,
        interval: Duration,
    ) -> io::Result<Self> {
        faults::check(FailPoint::Watcher)?;
        let stop = Arc::new(AtomicBool::new(false));
        let body = {
            let (cpus, stop) = (Arc::clone(&cpus), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Acquire) {
                    // A failed check changes nothing; the next one comes soon enough.
                    let _ = topology.reconcile();
                    cpus.wait(interval);
                }
            }
        };
        let thread = thread::Builder::new()
            .name(NAME.into())
            .spawn(faults::inherited(body))?;
        Ok(Watcher {
            cpus,
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Ends the thread; afterwards no worker is made or ended.
    pub(crate) fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.cpus.interrupt();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
