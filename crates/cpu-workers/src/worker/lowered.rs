//! Real-time threads without their priority for a while: what takes long must not keep the programs
//! of a CPU waiting.

use std::cell::Cell;

use crate::priority::{lower_this, raise_this};
use crate::worker::thread::current_worker;

thread_local! {
    /// The real-time priority of a lowered thread that is no worker.
    static LOWERED_FROM: Cell<Option<u8>> = const { Cell::new(None) };
}

/// Takes real-time priority from the calling thread until [`raise`]. A worker that is to be
/// real-time from now on stays ordinary until then.
pub fn lower() {
    match current_worker() {
        Some(worker) => worker.priority.lower(),
        None => LOWERED_FROM.set(lower_this()),
    }
}

/// Ends [`lower`]: a worker gets the priority that workers have by now, another thread the one it
/// had.
pub fn raise() {
    match current_worker() {
        Some(worker) => worker.priority.raise(),
        None => {
            if let Some(priority) = LOWERED_FROM.take() {
                raise_this(priority);
            }
        }
    }
}
