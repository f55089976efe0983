//! The primitives that the queue, the parking and the slots are built on; with the
//! feature `loom` those that the models in `models.rs` can replay.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic::AtomicBool};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic::AtomicBool};

/// Jobs run outside of all locks and their panics are caught, so a poisoned lock would mean a
/// panic between two statements that cannot panic. Its data is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
