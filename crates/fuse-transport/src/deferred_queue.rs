//! Requests that must wait for something outside this process, such as a network.
//!
//! The thread that took such a request puts it into this queue and serves the next request. Threads
//! that may wait answer the deferred request over the descriptor from which it came: on other
//! descriptors, the kernel does not find the request.

use std::collections::VecDeque;
use std::sync::Arc;

use sys::pi_condvar::PiCondvar;
use sys::pi_mutex::PiMutex;

use crate::filesystem::Wait;
use crate::wait_order::Waiter;
use crate::wire::InHeader;

/// Maximum number of threads that wait at the same time. Each answers one request; the other
/// requests stay in the queue.
const MOST_THREADS: usize = 64;

/// Maximum number of requests in the queue. When the queue is full, the thread that takes a request
/// does the waiting itself, so further requests stay in the kernel.
const MOST_REQUESTS: usize = 1024;

/// A request, the descriptor from which it came, and the function that waits for it.
pub(crate) struct DeferredRequest {
    pub(crate) header: InHeader,
    pub(crate) bytes: Box<[u8]>,
    pub(crate) waiter: Arc<Waiter>,
    pub(crate) wait: Wait,
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
    /// Defers a request. Returns the request if no thread would answer it or if the queue is full.
    pub(crate) fn put(&self, request: DeferredRequest) -> Option<DeferredRequest> {
        let mut inner = self.inner.lock();
        let has_room = inner.requests.len() < MOST_REQUESTS;
        if inner.threads == 0 || inner.closed || !has_room {
            return Some(request);
        }
        inner.requests.push_back(request);
        self.changed.notify_one();
        None
    }

    /// Waits for a request; returns `None` when the mount has ended. The second value says whether
    /// another thread should be started: it is true if no thread waits for the next request and the
    /// limit of threads is not reached.
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

    /// Notes that a thread begins to wait for requests.
    pub(crate) fn join(&self) {
        self.inner.lock().threads += 1;
    }

    /// Notes that a thread has ended.
    pub(crate) fn leave(&self) {
        self.inner.lock().threads -= 1;
    }

    pub(crate) fn close(&self) {
        self.inner.lock().closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn waiter() -> Arc<Waiter> {
        let file = || File::open("/dev/null").expect("a descriptor").into();
        Arc::new(Waiter {
            cpu: None,
            device: file(),
            epoll: file(),
        })
    }

    #[test]
    fn a_request_beyond_the_bound_is_returned_and_the_others_come_in_their_order() {
        let (queue, waiter) = (DeferredQueue::default(), waiter());
        let request = |unique| DeferredRequest {
            header: InHeader {
                unique,
                ..InHeader::default()
            },
            bytes: Box::default(),
            waiter: Arc::clone(&waiter),
            wait: Box::new(|_| Ok(())),
        };
        assert!(queue.put(request(0)).is_some(), "no thread would answer it");
        queue.join();
        for unique in 0..MOST_REQUESTS as u64 {
            assert!(queue.put(request(unique)).is_none(), "{unique}");
        }
        let refused = queue.put(request(7));
        assert_eq!(refused.map(|request| request.header.unique), Some(7));
        for unique in 0..2 {
            let (taken, is_last) = queue.take().expect("a request");
            assert_eq!((taken.header.unique, is_last), (unique, true));
        }
        assert!(queue.put(request(8)).is_none(), "there is room again");
        queue.close();
        assert!(queue.take().is_none() && queue.put(request(9)).is_some());
    }
}
