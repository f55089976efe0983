//! State that all requests of an engine share: shut-down, the turn of heavy requests, peaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;

use crate::per_thread::OwnLines;

/// Shared by all requests of an engine. All fields are atomic.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// The engine shuts down: requests end with EINTR.
    closing: AtomicBool,
    /// A heavy request is served.
    heavy: AtomicBool,
    steps: AtomicU64,
    bytes: AtomicU64,
    long: AtomicU64,
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

impl Control {
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// The calling thread's request may be heavy; false if another one is.
    pub(crate) fn take_turn(&self) -> bool {
        !self.heavy.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn end_turn(&self) {
        self.heavy.store(false, Ordering::Relaxed);
    }

    /// Notes what one request took. Most requests only read the peaks.
    pub(crate) fn record(&self, steps: u64, bytes: u64, long: bool) {
        for (peak, taken) in [(&self.steps, steps), (&self.bytes, bytes)] {
            if taken > peak.load(Ordering::Relaxed) {
                peak.fetch_max(taken, Ordering::Relaxed);
            }
        }
        if long {
            self.long.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn peaks(&self) -> RequestPeaks {
        let [steps, bytes, long] =
            [&self.steps, &self.bytes, &self.long].map(|peak| peak.load(Ordering::Relaxed));
        RequestPeaks { steps, bytes, long }
    }
}

/// A reference for the requests of one thread: their copies count in lines that no other thread
/// writes.
pub(crate) type ThreadControl = Arc<OwnLines<Arc<Control>>>;

/// A new one.
pub(crate) fn for_thread(control: &Arc<Control>) -> ThreadControl {
    Arc::new(OwnLines(Arc::clone(control)))
}
