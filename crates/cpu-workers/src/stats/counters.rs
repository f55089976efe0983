//! Counters of one worker.

use std::ops::Deref;
use std::sync::atomic::AtomicU64;

use super::histogram::Histogram;
use super::types::Counts;

/// Only the worker's thread writes these counters; any thread may read them. They have their own
/// cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Counters {
    counts: Counts,
    pub(crate) queue_delay: Histogram,
    pub(crate) run: Histogram,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Counters {
            counts: Counts::default(),
            queue_delay: Histogram::new(),
            run: Histogram::new(),
        }
    }
}

impl Deref for Counters {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        &self.counts
    }
}

/// Adds one. Only the worker's thread may call this.
pub(crate) fn count(counter: &AtomicU64) {
    figures::add(counter, 1);
}
