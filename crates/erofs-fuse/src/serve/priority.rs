//! Threads beside the workers that have their priority.

use std::sync::{Arc, Weak};

use erofs_engine::Engine;

/// Does `work` on the calling thread with the priority of the pinned workers, as it changes.
pub(super) fn with_that_of_workers<R>(engine: &Weak<Engine>, work: impl FnOnce() -> R) -> R {
    let pinned = |engine: Arc<Engine>| engine.pinned_workers().cloned();
    if let Some(workers) = engine.upgrade().and_then(pinned) {
        workers.follow();
    }
    let result = work();
    if let Some(workers) = engine.upgrade().and_then(pinned) {
        workers.unfollow();
    }
    result
}
