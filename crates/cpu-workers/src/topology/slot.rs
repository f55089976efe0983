//! The slot of one CPU's worker.

use std::sync::Arc;

use crate::sync::RwLock;

/// A slot is empty while the CPU is offline or if its worker could not be created.
///
/// Threads queue jobs inside `read`. Therefore `unpublish` returns only when none of them is about
/// to use the worker and all their jobs are in its queue.
#[derive(Debug)]
pub(crate) struct Slot<W> {
    worker: RwLock<Option<Arc<W>>>,
}

impl<W> Default for Slot<W> {
    fn default() -> Self {
        let worker = RwLock::new(None);
        Slot { worker }
    }
}

impl<W> Slot<W> {
    /// Runs `f` with the worker, which stays published until `f` returns.
    pub(crate) fn read<R>(&self, f: impl FnOnce(Option<&Arc<W>>) -> R) -> R {
        let worker = self
            .worker
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        f(worker.as_ref())
    }

    /// The worker; it may be unpublished and ended while the caller holds it.
    pub(crate) fn get(&self) -> Option<Arc<W>> {
        self.read(|worker| worker.cloned())
    }

    /// Fills the slot, or returns `worker` if the slot is already full.
    pub(crate) fn publish(&self, worker: Arc<W>) -> Result<(), Arc<W>> {
        let mut slot = self
            .worker
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        match *slot {
            Some(_) => Err(worker),
            None => {
                *slot = Some(worker);
                Ok(())
            }
        }
    }

    /// Empties the slot after all threads inside `read` have left.
    pub(crate) fn unpublish(&self) -> Option<Arc<W>> {
        self.worker
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .take()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_taken_slot_hands_the_second_worker_back() {
        let slot = Slot::default();
        assert!(slot.publish(Arc::new(1)).is_ok());
        assert_eq!(slot.publish(Arc::new(2)), Err(Arc::new(2)));
        assert_eq!(slot.unpublish(), Some(Arc::new(1)));
        assert_eq!(slot.unpublish(), None);
        assert!(slot.publish(Arc::new(3)).is_ok());
    }
}
