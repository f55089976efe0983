//! What one worker counts, and its clock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::histogram::Histogram;

/// All fields A. Relaxed: they are statistics and order nothing.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) done: AtomicU64,
    pub(crate) served: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) wakeups: AtomicU64,
    pub(crate) queue_delay: Histogram,
    pub(crate) run: Histogram,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Counters {
            done: AtomicU64::new(0),
            served: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            wakeups: AtomicU64::new(0),
            queue_delay: Histogram::new(),
            run: Histogram::new(),
        }
    }
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// CLOCK_MONOTONIC in nanoseconds: the clock of scheduler traces recorded with "mono", so that the
/// two can be laid side by side.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
