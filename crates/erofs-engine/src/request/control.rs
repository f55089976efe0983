//! State that all requests of an engine share: shut-down, the turn of heavy requests, peaks.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

/// Shared by all requests of an engine. All fields are atomic.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Whether the engine is shutting down, so that requests end with EINTR.
    closing: AtomicBool,
    /// Whether a heavy request is being served.
    heavy: AtomicBool,
    peaks: Peaks,
}

figures::figures! {
    /// The largest amounts that a single request used since the image was opened.
    #[derive(Clone, Copy, Debug, Default, Serialize)]
    pub struct RequestPeaks counted by struct Peaks {
        /// Reads of metadata and blocks of directories.
        pub steps,
        /// Bytes fetched and decoded.
        pub bytes,
        /// Number of requests that became long.
        pub long,
    }
}

impl Control {
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Lets the calling thread's request become heavy; false if another request is heavy.
    pub(crate) fn take_turn(&self) -> bool {
        !self.heavy.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn end_turn(&self) {
        self.heavy.store(false, Ordering::Relaxed);
    }

    /// Records what one request used. Most requests are below the peaks, and therefore write
    /// nothing that other threads read.
    pub(crate) fn record(&self, steps: u64, bytes: u64, long: bool) {
        for (peak, taken) in [(&self.peaks.steps, steps), (&self.peaks.bytes, bytes)] {
            if taken > peak.load(Ordering::Relaxed) {
                peak.fetch_max(taken, Ordering::Relaxed);
            }
        }
        if long {
            self.peaks.long.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn peaks(&self) -> RequestPeaks {
        let mut peaks = RequestPeaks::default();
        self.peaks.add_to(&mut peaks);
        peaks
    }
}
