//! The channel of one serving thread, over either transport.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use sys::eventfd::EventFd;

/// Why [`Channel::wait`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ready {
    /// There may be a request: call [`Channel::serve`].
    Request,
    /// The waker was called, or a signal arrived.
    Woken,
    /// The mount is gone.
    Closed,
}

/// The outcome of [`Channel::serve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// One request was answered.
    Served,
    /// Another thread took the request first.
    Nothing,
    /// The mount is gone.
    Closed,
}

/// What the channels of both transports do.
pub(crate) trait Serve: AsFd + Send {
    fn wait(&mut self) -> Ready;
    fn serve(&mut self) -> State;
    fn flush(&mut self) {}
    fn waker(&self) -> &Arc<EventFd>;
}

/// Takes requests and answers them, on one thread.
pub struct Channel(Box<dyn Serve>);

impl Channel {
    pub(crate) fn new(kind: impl Serve + 'static) -> Self {
        Self(Box::new(kind))
    }

    /// Sleeps until there is a request, the waker is called, or the mount is gone.
    pub fn wait(&mut self) -> Ready {
        self.0.wait()
    }

    /// Takes one request, if there is one, and answers it.
    pub fn serve(&mut self) -> State {
        self.0.serve()
    }

    /// Sends the last reply if it is still queued for the next [`wait`](Self::wait). Call this
    /// before the thread does anything else.
    pub fn flush(&mut self) {
        self.0.flush();
    }

    /// Ends this channel's sleep from another thread.
    pub fn waker(&self) -> Arc<EventFd> {
        Arc::clone(self.0.waker())
    }

    /// Serves until the mount is gone, on a thread that does nothing else.
    pub fn run(mut self) {
        loop {
            match self.wait() {
                Ready::Closed => return,
                Ready::Request if self.serve() == State::Closed => return,
                _ => {}
            }
        }
    }
}

impl AsFd for Channel {
    /// Readable when [`Channel::wait`] must be called.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}
