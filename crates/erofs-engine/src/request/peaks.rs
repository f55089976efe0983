//! The most that one request took so far.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// All fields are atomic.
#[derive(Debug, Default)]
pub(crate) struct Peaks {
    steps: AtomicU64,
    bytes: AtomicU64,
    long: AtomicU64,
}

/// What one request took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub steps: u64,
    pub bytes: u64,
    pub long: bool,
}

/// The most of each that one request took, since the image was opened.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RequestPeaks {
    /// Reads of metadata and blocks of directories.
    pub steps: u64,
    /// Bytes fetched and decoded.
    pub bytes: u64,
    /// Requests that were long.
    pub long: u64,
}

impl Peaks {
    pub(crate) fn record(&self, taken: Taken) {
        raise(&self.steps, taken.steps);
        raise(&self.bytes, taken.bytes);
        if taken.long {
            self.long.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> RequestPeaks {
        let get = |peak: &AtomicU64| peak.load(Ordering::Relaxed);
        RequestPeaks {
            steps: get(&self.steps),
            bytes: get(&self.bytes),
            long: get(&self.long),
        }
    }
}

/// Most requests only read the peak.
fn raise(peak: &AtomicU64, value: u64) {
    if value > peak.load(Ordering::Relaxed) {
        peak.fetch_max(value, Ordering::Relaxed);
    }
}
