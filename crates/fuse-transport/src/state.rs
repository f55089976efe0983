//! Results of one step of a channel.

/// Why [`Channel::wait`](crate::Channel::wait) returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ready {
    /// There may be a request: call [`Channel::serve`](crate::Channel::serve).
    Request,
    /// The waker was called, or a signal arrived.
    Woken,
    /// The mount is gone.
    Closed,
}

/// What [`Channel::serve`](crate::Channel::serve) did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// One request was answered.
    Served,
    /// Another thread took the request first.
    Nothing,
    /// The mount is gone.
    Closed,
}
