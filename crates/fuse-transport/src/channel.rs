//! What the channels of both transports do.

use std::os::fd::AsFd;
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

/// Takes requests and answers them, on one thread.
pub trait Channel: AsFd + Send {
    /// Sleeps until there is a request, the waker is called, or the mount is gone. The channel's
    /// descriptor is readable when this method must be called.
    fn wait(&mut self) -> Ready;

    /// Takes one request, if there is one, and answers it.
    fn serve(&mut self) -> State;

    /// Sends the last reply if it is still queued for the next [`wait`](Self::wait). Call this
    /// before the thread does anything else.
    fn flush(&mut self) {}

    /// Ends this channel's sleep from another thread.
    fn waker(&self) -> Arc<EventFd>;

    /// Serves until the mount is gone, on a thread that does nothing else.
    fn run(mut self: Box<Self>) {
        loop {
            match self.wait() {
                Ready::Closed => return,
                Ready::Request if self.serve() == State::Closed => return,
                _ => {}
            }
        }
    }
}
