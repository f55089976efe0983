//! Commands that query the servers of other users' mounts.
//!
//! If such a server takes a request and never answers it, no signal can end the waiting thread,
//! which keeps its process alive. The work therefore runs in a child process: once this process has
//! the result, it exits, whatever happens to the child's threads.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, waitpid};

/// Runs `work` in a child process and exits with its status; if no child can be created, runs it in
/// this process. Must be called before any thread is created.
pub fn run(work: impl FnOnce() -> u8) -> ExitCode {
    let mut work = Some(work);
    let status = match begin(&mut work) {
        Ok((child, reader)) => outcome(child, reader),
        Err(_) => work.map_or(1, |work| work()),
    };
    ExitCode::from(status)
}

fn begin(work: &mut Option<impl FnOnce() -> u8>) -> io::Result<(Pid, io::PipeReader)> {
    let (reader, mut writer) = io::pipe()?;
    let stdin = io::stdin().as_fd().try_clone_to_owned()?;
    let parent = rustix::process::getpid();
    let child = sys::fork::fork(stdin, &[writer.as_raw_fd()], || {
        // If the command is killed, its child is killed too.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        if rustix::process::getppid() != Some(parent) {
            return 1;
        }
        let status = work.take().map_or(1, |work| work());
        // Output errors have been reported. Writing the status fails only if the parent was killed.
        let _ = io::stdout().flush();
        let _ = writer.write_all(&[status]);
        status.into()
    })?;
    let child = Pid::from_raw(child).ok_or(io::ErrorKind::Other)?;
    Ok((child, reader))
}

fn outcome(child: Pid, mut reader: io::PipeReader) -> u8 {
    let mut status = [0];
    if reader.read_exact(&mut status).is_ok() {
        return status[0];
    }
    // The child ended without a result.
    let ended = waitpid(Some(child), WaitOptions::empty());
    let signal = |ended: WaitStatus| Some(128 + ended.terminating_signal()?);
    let code = ended.ok().flatten().map(|(_, ended)| ended);
    let code = code.and_then(|ended| ended.exit_status().or_else(|| signal(ended)));
    code.and_then(|code| code.try_into().ok()).unwrap_or(1)
}
