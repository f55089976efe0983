//! Which tests may record at the same time. Each request of a mount is in the trace of one recorder
//! only, so a test that checks requests must be the only recorder.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static RECORDERS: RwLock<()> = RwLock::new(());

/// Waits while another test is the only recorder; until the guard is dropped, no test can become
/// the only recorder.
pub(crate) fn among_others() -> RwLockReadGuard<'static, ()> {
    RECORDERS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no other test records; until the guard is dropped, no other test can begin to
/// record.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    RECORDERS.write().unwrap_or_else(PoisonError::into_inner)
}
