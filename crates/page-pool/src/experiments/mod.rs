//! Instruments of experiments (`erofast lab pressure`): a meter for every allocation, and one
//! buffer per thread as the alternative to a pool. Only with the feature `experiments`.

mod meter;
mod thread_buffers;

use sys::memory::Run;

use crate::PoolOptions;
use meter::Meter;
use thread_buffers::ThreadBuffers;

pub use meter::AllocationTimes;

/// The instruments that a pool's options enable.
#[derive(Debug)]
pub(crate) struct Instruments {
    thread_buffers: Option<ThreadBuffers>,
    meter: Option<Meter>,
}

impl Instruments {
    pub(crate) fn new(options: &PoolOptions) -> Self {
        Instruments {
            thread_buffers: options.thread_buffers.then(ThreadBuffers::default),
            meter: options.measure.then(Meter::new),
        }
    }

    /// Runs `allocate`, measured where the options ask for it.
    pub(crate) fn measure<R>(&self, allocate: impl FnOnce() -> R) -> R {
        match &self.meter {
            Some(meter) => meter.measure(allocate),
            None => allocate(),
        }
    }

    /// The buffer which the calling thread kept, if it has `pages` pages.
    pub(crate) fn take(&self, pages: usize) -> Option<Run> {
        self.thread_buffers.as_ref()?.take(pages)
    }

    /// Keeps a released buffer for the calling thread, or unmaps it.
    pub(crate) fn put(&self, run: Run) {
        if let Some(buffers) = &self.thread_buffers {
            buffers.put(run);
        }
    }

    pub(crate) fn thread_pages(&self) -> usize {
        self.thread_buffers.as_ref().map_or(0, ThreadBuffers::pages)
    }

    pub(crate) fn times(&self, in_use_pages: Vec<(usize, u64)>) -> Option<AllocationTimes> {
        self.meter.as_ref().map(|meter| meter.times(in_use_pages))
    }
}
