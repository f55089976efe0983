//! Counters of one worker.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::stats::histogram::Histogram;

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
