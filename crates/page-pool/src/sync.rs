//! The primitives that the pool is built on; with the feature `loom`, they are loom's, for the
//! models.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub(crate) use sys::pi_mutex::{PiMutex as Mutex, PiMutexGuard as MutexGuard};

#[cfg(not(feature = "loom"))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// The counters stay consistent even if a thread panicked while holding the lock.
#[cfg(feature = "loom")]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
