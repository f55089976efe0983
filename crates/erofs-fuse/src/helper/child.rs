//! A process that this one has started.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A child process. Until it was waited for, its number is its own.
#[derive(Debug)]
pub(super) struct ChildProcess(Pid);

impl From<Child> for ChildProcess {
    fn from(child: Child) -> Self {
        Self(Pid::from_child(&child))
    }
}

impl ChildProcess {
    /// Runs `child` in a new process, with this standard input, the other standard streams, and the
    /// descriptor `keep`.
    pub(super) fn fork(
        stdin: OwnedFd,
        keep: Option<BorrowedFd<'_>>,
        child: impl FnOnce() -> i32,
    ) -> io::Result<Self> {
        let pid = sys::fork::fork(stdin, keep, child)?;
        let none = io::Error::from(io::ErrorKind::InvalidData);
        Pid::from_raw(pid).map(Self).ok_or(none)
    }

    /// No error if it is dead already.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        match kill_process(self.0, signal) {
            Err(Errno::SRCH) => Ok(()),
            outcome => outcome,
        }
    }

    /// How it ended; `None` while it is alive.
    pub(super) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.reap(WaitOptions::NOHANG)
    }

    /// Waits for its end.
    pub(super) fn wait(self) -> io::Result<ExitStatus> {
        let ended = self.reap(WaitOptions::empty())?;
        ended.ok_or(io::ErrorKind::Interrupted.into())
    }

    fn reap(&self, options: WaitOptions) -> io::Result<Option<ExitStatus>> {
        let ended = rustix::io::retry_on_intr(|| waitpid(Some(self.0), options))?;
        Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
    }
}
