//! Threads beside the workers that have their priority.

use std::sync::Weak;

use erofs_engine::Engine;

/// Does `work` on the calling thread with the priority of the pinned workers, as it changes.
pub(super) fn with_that_of_workers<R>(engine: &Weak<Engine>, work: impl FnOnce() -> R) -> R {
    let workers = engine
        .upgrade()
        .and_then(|engine| engine.pinned_workers().cloned());
    let _follows = workers.map(|workers| workers.follow());
    work()
}
