//! The pool without instruments: what a build without the feature `experiments` has.

use sys::memory::Run;

use crate::PoolOptions;

/// Does nothing.
#[derive(Debug)]
pub(crate) struct Instruments;

impl Instruments {
    pub(crate) fn new(_options: &PoolOptions) -> Self {
        Instruments
    }

    pub(crate) fn measure<R>(&self, allocate: impl FnOnce() -> R) -> R {
        allocate()
    }

    pub(crate) fn take(&self, _pages: usize) -> Option<Run> {
        None
    }

    pub(crate) fn put(&self, run: Run) {
        drop(run);
    }
}
