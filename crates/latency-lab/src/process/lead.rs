//! The lab ahead of its children, where it was started with a real-time policy: a program that
//! never sleeps would otherwise keep it from the CPU, and no time limit would end it.

use std::process::Command;
use std::sync::OnceLock;

use sys::sched::{Inherited, lead};

/// What the lab was started with, if that is real-time, and what all children have. The thread that
/// starts the first child leads from then on.
pub(super) static INHERITED: OnceLock<Option<Inherited>> = OnceLock::new();

/// Has a child start with what the lab was started with, below the lab.
pub(super) fn before(command: &mut Command) {
    // A refusal leaves the lab where it was.
    if let Some(inherited) = INHERITED.get_or_init(|| lead().ok().flatten()) {
        inherited.give(command);
    }
}
