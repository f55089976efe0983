//! Children that end with their parent.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// Has `command` get SIGTERM when the thread that starts it ends, also by a SIGKILL of its process.
///
/// The kernel forgets that where the program changes its user or has more rights than its parent
/// (prctl(2), `PR_SET_PDEATHSIG`), and does not pass it on to what the child starts.
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
        // The parent was gone before the call.
        false => Err(io::ErrorKind::Interrupted.into()),
    }
}
