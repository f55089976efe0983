//! A pcluster that one thread decodes and others wait for.

use std::sync::Arc;

use crate::Error;
use crate::read::decoded::Decoded;
use crate::sync::{PiCondvar, PiMutex, PiMutexGuard, lock, wait};

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
    /// Set once.
    outcome: Option<Outcome>,
}

/// `Ok(None)`: decoded, but there is no copy for other readers (none had joined in time).
pub(crate) type Outcome = Result<Option<Arc<Decoded>>, Error>;

impl PclusterInFlight {
    /// Most decoded bytes that a reader which has joined so far needs; 0 if none has.
    pub(crate) fn wanted(&self) -> usize {
        self.lock().wanted
    }

    /// Announces a reader that will [`wait`](Self::wait) for the first `length` decoded bytes.
    pub(crate) fn join(&self, length: usize) {
        let mut state = self.lock();
        state.wanted = state.wanted.max(length);
    }

    /// Waits for the decoding to end. `Ok(None)` means: claim the pcluster again.
    pub(crate) fn wait(&self, length: usize) -> Outcome {
        let mut state = self.lock();
        loop {
            match &state.outcome {
                Some(Ok(Some(decoded))) if decoded.bytes().len() < length => return Ok(None),
                Some(outcome) => return outcome.clone(),
                None => state = wait(&self.completed, state),
            }
        }
    }

    /// Ends the decoding and wakes all waiters. The first outcome counts.
    pub(crate) fn complete(&self, outcome: Outcome) {
        let mut state = self.lock();
        state.outcome.get_or_insert(outcome);
        drop(state);
        self.completed.notify_all();
    }

    fn lock(&self) -> PiMutexGuard<'_, State> {
        lock(&self.state)
    }
}
