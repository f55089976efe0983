//! Requests that must wait for something outside of this process, such as a network.
//!
//! The thread that took such a request puts it into this queue and serves the next one. Threads
//! that may wait answer it, over the descriptor that it came from: only there the kernel finds it.

use std::collections::VecDeque;
use std::sync::Arc;

use sys::pi_condvar::PiCondvar;
use sys::pi_mutex::PiMutex;

use crate::wait_order::Waiter;

/// Most threads that wait at the same time. Each answers one request; others stay in the queue.
const MOST_THREADS: usize = 64;

/// A request, and the descriptor it came from.
pub(crate) struct DeferredRequest {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) waiter: Arc<Waiter>,
}

/// The deferred requests of one mount; guarded by its own lock.
#[derive(Default)]
pub(crate) struct DeferredQueue {
    inner: PiMutex<Inner>,
    changed: PiCondvar,
}

#[derive(Default)]
struct Inner {
    requests: VecDeque<DeferredRequest>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl DeferredQueue {
    /// Defers what was read from the descriptor of `waiter`; false if no thread would answer it.
    pub(crate) fn put(&self, waiter: &Arc<Waiter>, bytes: &[u8]) -> bool {
        let mut inner = self.inner.lock();
        let open = inner.threads > 0 && !inner.closed;
        if open {
            inner.requests.push_back(DeferredRequest {
                bytes: bytes.into(),
                waiter: Arc::clone(waiter),
            });
            self.changed.notify_one();
        }
        open
    }

    /// Waits for a request; `None` at the end of the mount. Also whether one more thread should
    /// wait for the next one.
    pub(crate) fn take(&self) -> Option<(DeferredRequest, bool)> {
        let mut inner = self.inner.lock();
        inner.idle += 1;
        while inner.requests.is_empty() && !inner.closed {
            inner = self.changed.wait(inner);
        }
        inner.idle -= 1;
        let request = inner.requests.pop_front().filter(|_| !inner.closed)?;
        Some((request, inner.idle == 0 && inner.threads < MOST_THREADS))
    }

    /// A thread begins to wait for requests.
    pub(crate) fn join(&self) {
        self.inner.lock().threads += 1;
    }

    /// The thread has ended.
    pub(crate) fn leave(&self) {
        self.inner.lock().threads -= 1;
    }

    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.changed.notify_all();
    }
}
