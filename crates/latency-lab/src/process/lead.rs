//! Keeps the lab ahead of its children if the lab was started with a real-time policy. Otherwise a
//! program that never sleeps would keep the lab off the CPU, and the lab could not end the program
//! at its time limit.

use std::process::Command;
use std::sync::OnceLock;

use sys::sched::{Inherited, lead};

/// The real-time policy that the lab was started with, if any; all children start with it. From the
/// start of the first child on, the thread that starts children has a higher priority.
pub(super) static INHERITED: OnceLock<Option<Inherited>> = OnceLock::new();

/// Makes a child start with the policy that the lab was started with, at a lower priority than the
/// lab.
pub(super) fn before(command: &mut Command) {
    // If the kernel refuses, the lab keeps its priority.
    if let Some(inherited) = INHERITED.get_or_init(|| lead().ok().flatten()) {
        inherited.give(command);
    }
}
