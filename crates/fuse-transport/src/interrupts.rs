//! Interrupts: requests that no program waits for any more.
//!
//! The kernel sends INTERRUPT when the program that waits for a request gets a signal: over the
//! device, also where requests come over io_uring. Read-ahead has no program that waits; there it
//! counts whether the thread that caused it still exists.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::io::Errno;

use crate::wire::InHeader;

/// Interrupts that are remembered: many times the requests that are served at the same time.
const REMEMBERED: usize = 256;

/// The interrupts of one mount that came last. An interrupt may arrive before the thread that
/// serves its request has begun, so it is not sent to a thread: a request that takes long looks
/// here.
#[derive(Debug)]
pub(crate) struct Interrupts {
    /// A.
    count: AtomicUsize,
    /// A. Numbers of requests, which never repeat.
    requests: [AtomicU64; REMEMBERED],
}

impl Interrupts {
    pub(crate) fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            requests: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    pub(crate) fn add(&self, unique: u64) {
        let place = self.count.fetch_add(1, Ordering::Relaxed) % REMEMBERED;
        self.requests[place].store(unique, Ordering::Relaxed);
    }

    fn contains(&self, unique: u64) -> bool {
        let same = |request: &AtomicU64| request.load(Ordering::Relaxed) == unique;
        self.requests.iter().any(same)
    }
}

/// The request that a thread serves.
#[derive(Default)]
struct Serving {
    /// 0: none.
    unique: u64,
    reader: u32,
    interrupts: Option<Arc<Interrupts>>,
}

thread_local!(static SERVING: RefCell<Serving> = RefCell::default());

/// The calling thread begins to serve a request.
pub(crate) fn begin(interrupts: &Arc<Interrupts>, header: &InHeader) {
    SERVING.with_borrow_mut(|serving| {
        (serving.unique, serving.reader) = (header.unique, header.pid);
        let own = serving.interrupts.as_ref();
        if own.is_none_or(|own| !Arc::ptr_eq(own, interrupts)) {
            serving.interrupts = Some(Arc::clone(interrupts));
        }
    });
}

/// It has served it.
pub(crate) fn end() {
    SERVING.with_borrow_mut(|serving| serving.unique = 0);
}

/// Whether no program waits any more for the request of the calling thread: a signal came for the
/// program that did, or the thread that sent it is gone. Not for every request: it takes a
/// microsecond.
pub fn is_interrupted() -> bool {
    SERVING.with_borrow(|serving| {
        let Some(interrupts) = serving.interrupts.as_ref().filter(|_| serving.unique != 0) else {
            return false;
        };
        interrupts.contains(serving.unique) || is_gone(serving.reader)
    })
}

/// 0 is a thread of another PID namespace.
fn is_gone(thread: u32) -> bool {
    let Some(thread) = i32::try_from(thread).ok().filter(|&thread| thread > 0) else {
        return false;
    };
    let policy = sys::sched::policy(thread);
    policy.is_err_and(|error| error.raw_os_error() == Some(Errno::SRCH.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(unique: u64, pid: u32) -> InHeader {
        InHeader {
            unique,
            pid,
            ..InHeader::default()
        }
    }

    #[test]
    fn an_interrupt_concerns_its_request_whenever_it_comes() {
        let interrupts = Arc::new(Interrupts::new());
        interrupts.add(4);
        begin(&interrupts, &request(4, 0));
        assert!(is_interrupted());
        begin(&interrupts, &request(6, 0));
        assert!(!is_interrupted());
        interrupts.add(6);
        assert!(is_interrupted());
        end();
        assert!(!is_interrupted());
    }

    #[test]
    fn other_interrupts_push_out_the_oldest_alone() {
        let interrupts = Arc::new(Interrupts::new());
        (0..=REMEMBERED as u64).for_each(|number| interrupts.add(2 + 2 * number));
        begin(&interrupts, &request(2, 0));
        assert!(!is_interrupted());
        begin(&interrupts, &request(4, 0));
        assert!(is_interrupted());
    }

    #[test]
    fn a_reader_that_is_gone_counts_as_one_that_was_interrupted() {
        let interrupts = Arc::new(Interrupts::new());
        let tid = || rustix::thread::gettid().as_raw_nonzero().get();
        let gone = std::thread::spawn(tid).join().unwrap();
        begin(&interrupts, &request(4, tid() as u32));
        assert!(!is_interrupted());
        begin(&interrupts, &request(6, gone as u32));
        // The kernel may remove a thread a moment after it was joined.
        while !is_interrupted() {
            std::thread::yield_now();
        }
    }
}
