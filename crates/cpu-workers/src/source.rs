//! A door: something besides its queue that a worker waits on.

use std::io;
use std::sync::Arc;

/// What a [`Source`] says after one round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceState {
    /// Look at the queue, then call `wait` again.
    Continue,
    /// Nothing more will come. The source is dropped; the worker goes on with its queue alone.
    Closed,
}

/// Replaces the sleep of a worker. Made on the worker's own thread, runs there and is dropped there.
pub trait Source: Send {
    /// Serves what is there; then sleeps until there is a request or the [`Waker`] was called.
    /// Returns so that the queue can be looked at; it may return for no reason at all.
    ///
    /// Wrap the serving of one request in [`serve`](crate::serve): the worker then counts it, and
    /// does not pass for idle while it lasts.
    fn wait(&mut self) -> SourceState;
}

/// Ends the sleep of a [`Source`].
pub trait Waker: Send + Sync {
    /// Must be remembered when the source is not asleep (as an eventfd does): the next sleep then
    /// ends at once. Called from any thread.
    fn wake(&self);
}

/// A source and what wakes it.
pub type Door = (Box<dyn Source>, Arc<dyn Waker>);

/// Makes the door of one worker, on that worker's thread. The argument is the CPU the worker is
/// pinned to, `None` for an unbound one.
pub type MakeSource = dyn Fn(Option<usize>) -> io::Result<Door> + Send + Sync;
