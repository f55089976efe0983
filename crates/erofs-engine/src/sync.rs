//! The synchronization primitives of pclusters in flight, which real-time workers share with other
//! threads. With the feature `loom`, these are primitives that the models can replay.

#[cfg(not(feature = "loom"))]
pub(crate) use cpu_workers::{PiCondvar, PiMutex, PiMutexGuard};
#[cfg(feature = "loom")]
pub(crate) use loom::sync::{Condvar as PiCondvar, Mutex as PiMutex, MutexGuard as PiMutexGuard};

pub(crate) fn lock<T>(mutex: &PiMutex<T>) -> PiMutexGuard<'_, T> {
    let guard = mutex.lock();
    #[cfg(feature = "loom")]
    let guard = guard.unwrap_or_else(std::sync::PoisonError::into_inner);
    guard
}

pub(crate) fn wait<'m, T>(changed: &PiCondvar, guard: PiMutexGuard<'m, T>) -> PiMutexGuard<'m, T> {
    let guard = changed.wait(guard);
    #[cfg(feature = "loom")]
    let guard = guard.unwrap_or_else(std::sync::PoisonError::into_inner);
    guard
}
