//! Children that end with their parent.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes `command` receive SIGTERM when the thread that starts it ends, even if SIGKILL ends the
/// whole process.
///
/// The kernel cancels this if the program changes its user or has more rights than its parent
/// (prctl(2), `PR_SET_PDEATHSIG`), and does not pass it on to the child's own children.
pub fn end_with_parent(command: &mut Command) {
    let parent = getpid();
    // SAFETY: between fork and exec only three system calls are made; nothing is allocated and no
    // lock is taken.
    unsafe { command.pre_exec(move || bind_to(parent)) };
}

fn bind_to(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    match getppid() == Some(parent) {
        true => Ok(()),
        // The parent ended before the call.
        false => Err(io::ErrorKind::Interrupted.into()),
    }
}
