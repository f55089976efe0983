//! Counters of one worker.

use std::sync::atomic::AtomicU64;

use super::histogram::{Histogram, add};

/// All fields are atomic: written by the worker's thread alone, read by any. In lines of their own.
#[derive(Debug)]
#[repr(align(128))]
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

/// Adds one. Only the worker's thread may call this.
pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}
