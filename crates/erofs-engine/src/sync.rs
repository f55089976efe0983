//! The synchronization primitives of pclusters in flight, which real-time workers share with other
//! threads. With the feature `loom`, these are primitives that the models can replay.

#[cfg(not(feature = "loom"))]
pub(crate) use cpu_workers::{PiCondvar, PiMutex, PiMutexGuard};
#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Condvar as PiCondvar, Mutex as PiMutex, MutexGuard as PiMutexGuard};

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

#[cfg(not(feature = "loom"))]
pub(crate) fn wait<'m, T>(changed: &PiCondvar, guard: PiMutexGuard<'m, T>) -> PiMutexGuard<'m, T> {
    changed.wait(guard)
}

#[cfg(feature = "loom")]
pub(crate) fn wait<'m, T>(changed: &PiCondvar, guard: PiMutexGuard<'m, T>) -> PiMutexGuard<'m, T> {
    changed
        .wait(guard)
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
