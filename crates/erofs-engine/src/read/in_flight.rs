//! A pcluster that one thread decodes and others wait for.

use std::sync::Arc;

use page_pool::PageBuf;

use crate::sync::{PiCondvar, PiMutex, lock, wait};

/// Decoded bytes of a pcluster from its beginning; possibly not all of them.
pub(crate) type Decoded = Arc<PageBuf>;

/// A pcluster that is being decoded.
#[derive(Debug, Default)]
pub(crate) struct PclusterInFlight {
    /// Guarded by its own lock: leaf lock, never taken with another lock held.
    state: PiMutex<State>,
    completed: PiCondvar,
}

/// Guarded by `PclusterInFlight::state`.
#[derive(Debug, Default)]
struct State {
    /// Most decoded bytes that a reader which joined needs; 0 if none joined.
    wanted: usize,
    ended: bool,
    /// None after a failure, or if no reader had joined in time for a copy.
    decoded: Option<Decoded>,
}

impl PclusterInFlight {
    /// Most decoded bytes that a reader which has joined so far needs; 0 if none has.
    pub(crate) fn wanted(&self) -> usize {
        lock(&self.state).wanted
    }

    /// Announces a reader that will [`wait`](Self::wait) for the first `length` decoded bytes.
    pub(crate) fn join(&self, length: usize) {
        let mut state = lock(&self.state);
        state.wanted = state.wanted.max(length);
    }

    /// Waits for the decoding to end. `None` means: claim the pcluster again.
    pub(crate) fn wait(&self, length: usize) -> Option<Decoded> {
        let mut state = lock(&self.state);
        while !state.ended {
            state = wait(&self.completed, state);
        }
        let decoded = state.decoded.clone();
        decoded.filter(|decoded| decoded.len() >= length)
    }

    /// Ends the decoding and wakes all waiters. The first call counts.
    pub(crate) fn complete(&self, decoded: Option<Decoded>) {
        let mut state = lock(&self.state);
        if !state.ended {
            (state.ended, state.decoded) = (true, decoded);
        }
        drop(state);
        self.completed.notify_all();
    }
}
