//! The primitives of the queue, the parker and the slots, with priority inheritance. With the
//! feature `loom`, they are loom's, for the models in `models.rs`.

#[cfg(feature = "loom")]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard, RwLock,
    atomic::{AtomicBool, AtomicUsize},
};
#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::{
    RwLock,
    atomic::{AtomicBool, AtomicUsize},
};
#[cfg(not(feature = "loom"))]
pub(crate) use sys::pi_condvar::PiCondvar as Condvar;
#[cfg(not(feature = "loom"))]
pub(crate) use sys::pi_mutex::{PiMutex as Mutex, PiMutexGuard as MutexGuard};

#[cfg(not(feature = "loom"))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(not(feature = "loom"))]
pub(crate) fn wait<'m, T>(changed: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
    changed.wait(guard)
}

/// Jobs run outside all locks and their panics are caught, so a poisoned lock would mean a panic
/// between two statements that cannot panic. In any case the data is intact.
#[cfg(feature = "loom")]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(feature = "loom")]
pub(crate) fn wait<'m, T>(changed: &Condvar, guard: MutexGuard<'m, T>) -> MutexGuard<'m, T> {
    changed
        .wait(guard)
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
