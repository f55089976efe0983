//! An event source, on which a worker sleeps in addition to its queue.

use std::io;
use std::sync::Arc;

/// Result of one [`EventSource::wait`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventSourceState {
    /// The worker should check its queue, then call `wait` again.
    Continue,
    /// The source has ended. The worker drops it and serves only its queue.
    Closed,
}

/// Something that a worker waits on instead of merely sleeping. It is created, used and dropped on
/// the worker's own thread.
pub trait EventSource: Send {
    /// Serves pending requests, or sleeps until one arrives or the [`Waker`] is called. Returns to
    /// let the worker check its queue; spurious returns are allowed.
    ///
    /// Implementations serve each request inside [`serve`](crate::serve), which counts it and marks
    /// the worker as busy.
    fn wait(&mut self) -> EventSourceState;

    /// Sends everything that [`wait`](Self::wait) would send before sleeping. Called before the
    /// worker runs a job, which may take long.
    fn flush(&mut self) {}
}

/// Ends the sleep of an [`EventSource`].
pub trait Waker: Send + Sync {
    /// Ends the current sleep, or the next one if the source is awake (as an eventfd does). Called
    /// from any thread.
    fn wake(&self);
}

impl Waker for sys::eventfd::EventFd {
    fn wake(&self) {
        sys::eventfd::EventFd::wake(self);
    }
}

/// An open source and its waker.
pub type OpenEventSource = (Box<dyn EventSource>, Arc<dyn Waker>);

/// Opens the event source of one worker, on that worker's thread. The argument is the CPU that the
/// worker is pinned to; `None` for an unbound worker.
pub type EventSourceFactory = dyn Fn(Option<usize>) -> io::Result<OpenEventSource> + Send + Sync;
