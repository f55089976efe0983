//! Threads that many mounts never need; each is started when it is first requested.
//!
//! The main thread starts them, because a requesting thread may be real-time and pinned, and its
//! children would inherit both.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sys::eventfd::EventFd;

use crate::error::Error;

type Start = Box<dyn FnOnce()>;

/// The threads of one mount, owned by the main thread.
pub(crate) struct OnDemand {
    asked: Arc<EventFd>,
    /// Threads that have not been started yet, with the functions that start them.
    threads: Vec<(Demand, Start)>,
}

/// A handle with which one thread is requested.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// Atomic: set once.
    asked: Arc<AtomicBool>,
    event: Arc<EventFd>,
}

impl OnDemand {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self {
            asked: Arc::new(EventFd::new().map_err(Error::std_io("eventfd"))?),
            threads: Vec::new(),
        })
    }

    /// Creates the handle for a thread whose start function is [set](Self::starts) later.
    pub(crate) fn demand(&self) -> Demand {
        Demand {
            asked: Arc::default(),
            event: Arc::clone(&self.asked),
        }
    }

    /// Sets how to start the thread of `demand`. If the thread cannot start, `start` does nothing:
    /// the work of all these threads is optional.
    pub(crate) fn starts(&mut self, demand: &Demand, start: impl FnOnce() + 'static) {
        self.threads.push((demand.clone(), Box::new(start)));
    }

    /// Starts the requested threads.
    pub(crate) fn start_asked(&mut self) {
        self.asked.clear();
        let is_asked = |(demand, _): &mut (Demand, Start)| demand.asked.load(Ordering::Acquire);
        for (_, start) in self.threads.extract_if(.., is_asked) {
            start();
        }
    }
}

impl AsFd for OnDemand {
    /// Readable if a thread was requested.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }
}

impl Demand {
    /// Requests the thread. May be called from any thread; calls after the first do nothing.
    pub(crate) fn ask(&self) {
        if !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::Release) {
            self.event.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_thread_is_started_once_and_only_when_asked_for() {
        let mut on_demand = OnDemand::new().unwrap();
        let [first, second] = [on_demand.demand(), on_demand.demand()];
        let started: Rc<[Cell<u32>; 2]> = Rc::default();
        for (number, demand) in [&first, &second].into_iter().enumerate() {
            let started = Rc::clone(&started);
            on_demand.starts(demand, move || {
                started[number].set(started[number].get() + 1);
            });
        }
        let counts = || [started[0].get(), started[1].get()];
        on_demand.start_asked();
        assert_eq!(counts(), [0, 0]);
        second.ask();
        second.ask();
        on_demand.start_asked();
        on_demand.start_asked();
        assert_eq!(counts(), [0, 1]);
        first.ask();
        on_demand.start_asked();
        assert_eq!(counts(), [1, 1]);
    }
}
