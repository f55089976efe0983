//! The most that one request took so far.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

/// A. All fields.
#[derive(Debug, Default)]
pub(crate) struct Peaks {
    steps: AtomicU64,
    bytes: AtomicU64,
    cpu_ns: AtomicU64,
    raised_ns: AtomicU64,
    long: AtomicU64,
}

/// What one request took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    pub steps: u64,
    pub bytes: u64,
    pub cpu: Duration,
    /// CPU time before it was long.
    pub raised: Duration,
    pub long: bool,
}

/// The most of each that one request took, since the image was opened.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RequestPeaks {
    /// Reads of metadata and blocks of directories.
    pub steps: u64,
    /// Bytes fetched and decoded.
    pub bytes: u64,
    /// CPU time; that of requests without a check of the clock is not counted.
    pub cpu_us: u64,
    /// CPU time at the priority of workers: until the request was long.
    pub raised_us: u64,
    /// Requests that were long.
    pub long: u64,
}

impl Peaks {
    pub(crate) fn record(&self, taken: Taken) {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        raise(&self.steps, taken.steps);
        raise(&self.bytes, taken.bytes);
        raise(&self.cpu_ns, nanoseconds(taken.cpu));
        raise(&self.raised_ns, nanoseconds(taken.raised));
        if taken.long {
            self.long.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> RequestPeaks {
        let get = |peak: &AtomicU64| peak.load(Ordering::Relaxed);
        RequestPeaks {
            steps: get(&self.steps),
            bytes: get(&self.bytes),
            cpu_us: get(&self.cpu_ns) / 1000,
            raised_us: get(&self.raised_ns) / 1000,
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
