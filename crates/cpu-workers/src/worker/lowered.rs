//! Temporarily takes real-time priority from a thread, so that long work does not keep a CPU's
//! programs waiting.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::priority::{ThreadPriority, lower_this, raise_this};
use crate::worker::thread::current_worker;

thread_local! {
    /// The priority of a thread that follows the workers.
    static FOLLOWER: RefCell<Option<Arc<ThreadPriority>>> = const { RefCell::new(None) };
    /// The previous real-time priority of a lowered thread that neither is a worker nor follows the
    /// workers.
    static LOWERED_FROM: Cell<Option<u8>> = const { Cell::new(None) };
}

/// Makes the calling thread follow the workers or, with `None`, no longer follow them.
pub(crate) fn set_followers_own(priority: Option<Arc<ThreadPriority>>) {
    FOLLOWER.set(priority);
}

/// Takes real-time priority from the calling thread until [`raise`]. If the workers become
/// real-time in the meantime, a worker, or a thread that follows the workers, stays ordinary until
/// it calls [`raise`].
pub fn lower() {
    if !change_shared(ThreadPriority::lower) {
        LOWERED_FROM.set(lower_this());
    }
}

/// Undoes [`lower`]: a worker, or a thread that follows the workers, receives the current priority
/// of the workers; any other thread regains its previous priority.
pub fn raise() {
    if change_shared(ThreadPriority::raise) {
        return;
    }
    if let Some(priority) = LOWERED_FROM.take() {
        raise_this(priority);
    }
}

/// Calls `change` with the calling thread's priority if the thread shares the workers' priority;
/// otherwise returns false.
fn change_shared(change: impl FnOnce(&ThreadPriority)) -> bool {
    match current_worker() {
        Some(worker) => {
            change(&worker.priority);
            true
        }
        None => FOLLOWER.with_borrow(|own| own.as_deref().map(change).is_some()),
    }
}
