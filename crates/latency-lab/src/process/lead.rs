//! Keeps the lab ahead of its children if it was started with a real-time policy: otherwise a
//! program that never sleeps would keep it from the CPU, and no time limit would end the program.

use std::process::Command;
use std::sync::OnceLock;

use sys::sched::{Inherited, lead};

/// The policy the lab was started with, if that is real-time, and which all children get. The
/// thread that starts the first child leads from then on.
pub(super) static INHERITED: OnceLock<Option<Inherited>> = OnceLock::new();

/// Makes a child start with the lab's original policy, below the lab.
pub(super) fn before(command: &mut Command) {
    // A refusal leaves the lab unchanged.
    if let Some(inherited) = INHERITED.get_or_init(|| lead().ok().flatten()) {
        inherited.give(command);
    }
}
