//! Which tests may record at the same time. Each request of a mount is in the trace of one recorder
//! only, so a test that checks requests must be the only recorder.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static RECORDERS: RwLock<()> = RwLock::new(());

/// Waits until no test needs to be the only recorder, and holds off those that do.
pub(crate) fn among_others() -> RwLockReadGuard<'static, ()> {
    RECORDERS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no other test records, and holds off those that would.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    RECORDERS.write().unwrap_or_else(PoisonError::into_inner)
}
