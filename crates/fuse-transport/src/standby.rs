//! Threads that take requests from the device only while others are busy for long.
//!
//! Always there, they would be woken instead of the thread of the reader's CPU, or beside it.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use sys::eventfd::EventFd;
use sys::pi_mutex::PiMutex;

use crate::wait_order::{WaitOrder, Waiter};

/// The threads that stand by for one mount. L: all of it.
#[derive(Debug, Default)]
pub(crate) struct Standby(PiMutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Requests that take long now.
    long: usize,
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    waiter: Arc<Waiter>,
    waker: Arc<EventFd>,
}

impl Standby {
    /// A thread that stands by from now on, or begins at once.
    pub(crate) fn add(&self, waiter: &Arc<Waiter>, waker: &Arc<EventFd>, order: &WaitOrder) {
        let mut state = self.0.lock();
        if state.long > 0 {
            // Out of memory: there is no help then.
            let _ = order.add(waiter);
        }
        state.threads.push(Thread {
            waiter: Arc::clone(waiter),
            waker: Arc::clone(waker),
        });
    }

    /// Those of the device, of all threads.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let state = self.0.lock();
        let devices = state
            .threads
            .iter()
            .map(|thread| thread.waiter.device.as_raw_fd());
        devices.collect()
    }

    /// A request takes long: the threads take others meanwhile.
    pub(crate) fn begin_long(&self, order: &WaitOrder) {
        let mut state = self.0.lock();
        state.long += 1;
        if state.long == 1 {
            for thread in &state.threads {
                // Out of memory: there is no help then.
                let _ = order.add(&thread.waiter);
            }
        }
    }

    /// It has ended.
    pub(crate) fn end_long(&self, order: &WaitOrder) {
        let mut state = self.0.lock();
        state.long = state.long.saturating_sub(1);
        if state.long == 0 {
            for thread in &state.threads {
                order.leave(&thread.waiter);
                // A request may have woken it alone, which it would sleep through now.
                thread.waker.wake();
            }
        }
    }

    /// The mount has ended.
    pub(crate) fn end(&self) {
        self.0
            .lock()
            .threads
            .iter()
            .for_each(|thread| thread.waker.wake());
    }
}
