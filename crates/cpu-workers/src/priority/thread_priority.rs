//! The priority that a thread should have, and whether it is temporarily lowered.

use sys::pi_mutex::PiMutex;
use sys::sched;

use super::set::{Wanted, apply, own_tid};

/// Guarded by its own lock, which is held while a priority is set, so that changes take effect in
/// the order in which they are made.
#[derive(Default)]
pub(crate) struct ThreadPriority(PiMutex<State>);

#[derive(Default)]
struct State {
    wanted: Wanted,
    lowered: bool,
}

impl ThreadPriority {
    /// Sets the priority of the thread `tid`: now or, if it is lowered, when it is raised again.
    pub(crate) fn set(&self, tid: i32, wanted: Wanted) -> Result<(), String> {
        let mut state = self.0.lock();
        state.wanted = wanted;
        match state.lowered {
            true => Ok(()),
            false => apply(tid, wanted),
        }
    }

    /// Like `set`, for a thread that may already have this priority.
    pub(crate) fn change(&self, tid: i32, wanted: Wanted) {
        if self.0.lock().wanted != wanted {
            // A refusal was reported when the thread was created.
            let _ = self.set(tid, wanted);
        }
    }

    /// Takes real-time priority from the calling thread, which must own this `ThreadPriority`.
    pub(crate) fn lower(&self) {
        self.0.lock().lowered = true;
        let _ = lower_this();
    }

    /// Gives the calling thread the priority that it should currently have.
    pub(crate) fn raise(&self) {
        let mut state = self.0.lock();
        state.lowered = false;
        // A refusal was reported when the thread was created, or when its priority was set.
        let _ = apply(own_tid(), state.wanted);
    }
}

/// Makes the calling thread ordinary. Returns the thread's previous real-time priority.
pub(crate) fn lower_this() -> Option<u8> {
    match sched::policy(0) {
        Ok(sched::Policy::Fifo(priority)) => {
            sched::set_policy(0, sched::Policy::Other).ok()?;
            Some(priority)
        }
        _ => None,
    }
}

/// Makes the calling thread real-time again.
pub(crate) fn raise_this(priority: u8) {
    // If raising is refused, the thread stays at normal priority.
    let _ = sched::set_policy(0, sched::Policy::Fifo(priority));
}
