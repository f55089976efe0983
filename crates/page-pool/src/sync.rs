//! The primitives that the pool is built on; with the feature `loom`, they are loom's, for the
//! models.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub(crate) use sys::pi_mutex::{PiMutex as Mutex, PiMutexGuard as MutexGuard};

/// Locks a mutex. The counters stay consistent even if a thread panics while it holds the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let guard = mutex.lock();
    #[cfg(feature = "loom")]
    let guard = guard.unwrap_or_else(std::sync::PoisonError::into_inner);
    guard
}
