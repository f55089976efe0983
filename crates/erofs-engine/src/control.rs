//! What ends requests before their budget does: the engine's end, and a server whose reader is
//! gone.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::heavy::HeavyInodes;
use crate::peaks::Peaks;
use crate::per_thread::OwnLines;

/// A server's part in requests that take long. Called on the thread that serves one.
pub trait LongRequests: Send + Sync {
    /// Whether no program waits for the request any more.
    fn is_interrupted(&self) -> bool;

    /// The request takes long from here on. The thread has normal priority until it ends.
    fn begin(&self);

    /// It has ended.
    fn end(&self);
}

/// Shared by all requests of an engine.
pub(crate) struct Control {
    /// A. The engine shuts down: requests end with EINTR.
    closing: AtomicBool,
    /// Set at most once.
    server: OnceLock<Box<dyn LongRequests>>,
    pub(crate) heavy: HeavyInodes,
    pub(crate) peaks: Peaks,
}

impl Control {
    pub(crate) fn new() -> Self {
        Self {
            closing: AtomicBool::new(false),
            server: OnceLock::new(),
            heavy: HeavyInodes::new(),
            peaks: Peaks::default(),
        }
    }

    pub(crate) fn set_server(&self, server: Box<dyn LongRequests>) {
        let _ = self.server.set(server);
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Whether no program waits any more for the request of the calling thread.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.server
            .get()
            .is_some_and(|server| server.is_interrupted())
    }

    /// The request of the calling thread takes long: others come first.
    pub(crate) fn begin_long(&self) {
        cpu_workers::lower();
        if let Some(server) = self.server.get() {
            server.begin();
        }
    }

    /// The end of what [`begin_long`](Self::begin_long) began.
    pub(crate) fn end_long(&self) {
        if let Some(server) = self.server.get() {
            server.end();
        }
        cpu_workers::raise();
    }
}

/// A reference for the requests of one thread: their copies count in lines that no other thread
/// writes.
pub(crate) type ThreadControl = Arc<OwnLines<Arc<Control>>>;

/// A new one.
pub(crate) fn for_thread(control: &Arc<Control>) -> ThreadControl {
    Arc::new(OwnLines(Arc::clone(control)))
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("closing", &self.is_closing())
            .finish_non_exhaustive()
    }
}
