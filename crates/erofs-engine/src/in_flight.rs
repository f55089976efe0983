//! A pcluster that one thread decodes and others wait for.

use std::sync::Arc;

use crate::Error;
use crate::decoded::Decoded;
use crate::sync::{PiCondvar, PiMutex, PiMutexGuard, lock, wait};

/// A pcluster that is being decoded.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// L: leaf lock, never taken with another lock held.
    state: PiMutex<State>,
    completed: PiCondvar,
}

#[derive(Debug, Default)]
struct State {
    /// L. The readers that joined.
    waiting: Waiting,
    /// L. Set once.
    outcome: Option<Outcome>,
}

/// The readers that wait for a pcluster.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    pub readers: usize,
    /// Most decoded bytes that one of them needs; 0 if none waits.
    pub bytes: usize,
}

/// `Ok(None)`: decoded, but there is no copy for other readers (none had joined in time).
pub(crate) type Outcome = Result<Option<Arc<Decoded>>, Error>;

impl InFlight {
    /// The readers that have joined so far.
    pub(crate) fn waiting(&self) -> Waiting {
        self.lock().waiting
    }

    /// Announces a reader that will [`wait`](Self::wait) for the first `length` decoded bytes.
    pub(crate) fn join(&self, length: usize) {
        let Waiting { readers, bytes } = &mut self.lock().waiting;
        *readers += 1;
        *bytes = length.max(*bytes);
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
