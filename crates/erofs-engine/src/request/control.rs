//! What all requests of an engine share: its end, and the most that one took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::per_thread::OwnLines;
use crate::request::peaks::Peaks;

/// Shared by all requests of an engine.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Atomic. The engine shuts down: requests end with EINTR.
    closing: AtomicBool,
    /// Atomic. A heavy request is served.
    heavy: AtomicBool,
    pub(crate) peaks: Peaks,
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
}

/// A reference for the requests of one thread: their copies count in lines that no other thread
/// writes.
pub(crate) type ThreadControl = Arc<OwnLines<Arc<Control>>>;

/// A new one.
pub(crate) fn for_thread(control: &Arc<Control>) -> ThreadControl {
    Arc::new(OwnLines(Arc::clone(control)))
}
