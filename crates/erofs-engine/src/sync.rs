//! The primitives that pclusters in flight are built on; with the feature `loom` those
//! that the models can replay.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// For the table of pclusters, which real-time workers share with other threads.
#[cfg(not(feature = "loom"))]
pub(crate) use cpu_workers::{PiMutex, PiMutexGuard};
#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Mutex as PiMutex, MutexGuard as PiMutexGuard};

#[cfg(not(feature = "loom"))]
pub(crate) fn lock<T>(mutex: &PiMutex<T>) -> PiMutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(feature = "loom")]
pub(crate) fn lock<T>(mutex: &PiMutex<T>) -> PiMutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
