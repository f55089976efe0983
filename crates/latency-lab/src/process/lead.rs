//! Keeps the lab ahead of its children if the lab was started with a real-time policy. Otherwise a
//! program that never sleeps would keep the lab from the CPU, and no time limit would end that
//! program.

use std::process::Command;
use std::sync::OnceLock;

use sys::sched::{Inherited, lead};

/// The real-time policy that the lab was started with, if any; all children start with it. The
/// thread that starts the first child has a higher priority from then on.
pub(super) static INHERITED: OnceLock<Option<Inherited>> = OnceLock::new();

/// Makes a child start with the policy that the lab was started with, at a lower priority than the
/// lab.
pub(super) fn before(command: &mut Command) {
    // If the kernel refuses, the lab keeps its priority.
    if let Some(inherited) = INHERITED.get_or_init(|| lead().ok().flatten()) {
        inherited.give(command);
    }
}
