//! A child process.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid,
};

/// A child process. Its ID is not reused until the child has been waited for.
#[derive(Debug)]
pub(crate) struct ChildProcess(Pid);

impl From<Child> for ChildProcess {
    fn from(child: Child) -> Self {
        Self(Pid::from_child(&child))
    }
}

impl ChildProcess {
    /// Runs `child` in a new process, whose standard input is `stdin`. The process also gets the
    /// other standard streams of this process and the descriptors `keep`.
    pub(crate) fn fork(
        stdin: OwnedFd,
        keep: &[RawFd],
        child: impl FnOnce() -> i32,
    ) -> io::Result<Self> {
        let pid = sys::fork::fork(stdin, keep, child)?;
        let none = io::Error::from(io::ErrorKind::InvalidData);
        Pid::from_raw(pid).map(Self).ok_or(none)
    }

    /// Runs `ask`, which may wait forever, in a child process without output. Returns the exit
    /// status; `None` if the child had not ended after `limit` and was killed.
    pub(crate) fn ask(
        limit: Duration,
        ask: impl FnOnce() -> i32,
    ) -> io::Result<Option<ExitStatus>> {
        let null = File::open("/dev/null")?;
        let child = Self::fork(null.into(), &[], || {
            // The child must not keep a copy of standard output: the process that waits for the
            // mount reads until every copy is closed.
            let _ = rustix::stdio::dup2_stdout(rustix::stdio::stdin());
            let _ = rustix::stdio::dup2_stderr(rustix::stdio::stdin());
            ask()
        });
        child?.wait_for(limit)
    }

    /// Gives this process, a child that was just forked, a name for `ps` and pkill(1), and `null`
    /// as its output, because the process that waits for the mount reads standard output until
    /// every copy of it is closed.
    pub(crate) fn begin(name: &CStr, null: &OwnedFd) {
        let _ = rustix::thread::set_name(name);
        let _ = rustix::stdio::dup2_stdout(null);
        let _ = rustix::stdio::dup2_stderr(null);
    }

    pub(crate) fn number(&self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    /// Makes the child the leader of its own process group, unless it already is.
    pub(crate) fn leave_group(&self) {
        let _ = rustix::process::setpgid(Some(self.0), Some(self.0));
    }

    /// Sends a signal to the child. Succeeds if the child is already dead.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        match kill_process(self.0, signal) {
            Err(Errno::SRCH) => Ok(()),
            outcome => outcome,
        }
    }

    /// The exit status; `None` while the child is alive.
    pub(crate) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.reap(WaitOptions::NOHANG)
    }

    /// Whether a signal has stopped the child.
    pub(crate) fn has_stopped(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(self.0), options), Ok(Some(_)))
    }

    /// The exit status of the child's first thread, which will also be the exit status of the
    /// process; `waitpid` returns it only after the last thread has ended. `None` if the first
    /// thread is alive, or if this process may not read the status.
    ///
    /// Read from the last field of proc_pid_stat(5), the wait status. A process without the right
    /// to trace the child reads 0.
    pub(crate) fn outcome_of_first_thread(&self) -> Option<ExitStatus> {
        let pid = self.0.as_raw_nonzero();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, behind_name) = stat.rsplit_once(") ")?;
        let status = behind_name.split_ascii_whitespace().next_back()?;
        let status: i32 = status.parse().ok()?;
        let is_known = behind_name.starts_with('Z') && status != 0;
        is_known.then(|| ExitStatus::from_raw(status))
    }

    /// Waits at most `limit` for the child to end, then kills it. A process that is in a frozen
    /// cgroup, or is waiting for a device, may end much later.
    pub(crate) fn wait_for(&self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let begin = Instant::now();
        loop {
            match self.try_wait()? {
                None if begin.elapsed() < limit => thread::sleep(Duration::from_millis(1)),
                None => {
                    let _ = self.signal(Signal::KILL);
                    return Ok(None);
                }
                status => return Ok(status),
            }
        }
    }

    pub(crate) fn wait(self) -> io::Result<ExitStatus> {
        let ended = self.reap(WaitOptions::empty())?;
        ended.ok_or(io::ErrorKind::Interrupted.into())
    }

    fn reap(&self, options: WaitOptions) -> io::Result<Option<ExitStatus>> {
        let ended = rustix::io::retry_on_intr(|| waitpid(Some(self.0), options))?;
        Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn outcome_within_a_minute(child: &ChildProcess) -> Option<ExitStatus> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(60) {
            let outcome = child.outcome_of_first_thread();
            if outcome.is_some() {
                return outcome;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    #[test]
    fn the_signal_that_ended_a_process_is_known_before_it_is_waited_for() {
        let child = Command::new("sh").args(["-c", "kill -SEGV $$"]).spawn();
        let child = ChildProcess::from(child.unwrap());
        let outcome = outcome_within_a_minute(&child);
        assert_eq!(outcome.unwrap().signal(), Some(libc::SIGSEGV));
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGSEGV));
    }

    #[test]
    fn how_the_first_thread_ended_is_known_while_others_are_left() {
        const PROGRAM: &str = "
import ctypes, platform, sys, threading
threading.Thread(target=sys.stdin.read).start()
exit_of_a_thread = {'x86_64': 60, 'aarch64': 93}[platform.machine()]
ctypes.CDLL(None).syscall(exit_of_a_thread, 3)
";
        let python = Command::new("python3")
            .args(["-c", PROGRAM])
            .stdin(Stdio::piped())
            .spawn();
        let mut python = match python {
            Ok(python) => python,
            Err(error) => return println!("skipped: a process of two threads: {error}"),
        };
        let stdin = python.stdin.take();
        let child = ChildProcess::from(python);
        let outcome = outcome_within_a_minute(&child);
        assert_eq!(outcome.unwrap().code(), Some(3));
        assert_eq!(child.try_wait().unwrap(), None);
        child.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        drop(stdin);
    }
}
