//! A child in its own process group, so that Ctrl-C at the terminal reaches only the lab, which
//! then ends its children in an orderly way. A pidfd reports the child's end, and its standard
//! error goes to a memfd.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use super::facts::{descendants, started};
use super::lead;
use crate::error::{Doing, dash};
use crate::{Interrupt, LabError, Result};

/// How long a process may take to end after SIGTERM before it is killed.
const TERM_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a wait for a child is interrupted to check for a request to stop.
const POLL: Duration = Duration::from_millis(200);

/// A child that is running or has ended.
#[derive(Debug)]
pub(crate) struct Child {
    child: std::process::Child,
    pidfd: OwnedFd,
    words: File,
    status: Option<ExitStatus>,
}

/// How waiting for a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The child ended.
    Exited(ExitStatus),
    /// The child is still running.
    TimedOut,
    /// The user asked to stop.
    Interrupted,
}

impl Child {
    /// Starts `command` without input; its output is discarded, and its standard error is kept.
    pub(crate) fn spawn(command: &mut Command) -> Result<Child> {
        Self::spawn_with(command, Stdio::null())
    }

    /// Starts `command` with this standard input, to which the command may also write.
    pub(crate) fn spawn_with(command: &mut Command, stdin: impl Into<Stdio>) -> Result<Child> {
        let program = PathBuf::from(command.get_program());
        lead::before(command);
        let words = words().doing("creating a memfd for", &program)?;
        let errors = words
            .try_clone()
            .doing("duplicating the memfd of", &program)?;
        let child = command
            .stdin(stdin)
            .stdout(Stdio::null())
            .stderr(errors)
            .process_group(0)
            .spawn()
            .doing("starting", &program)?;
        let pidfd =
            pidfd_open(pid_of(child.id()), PidfdFlags::empty()).doing("watching", &program)?;
        Ok(Child {
            child,
            pidfd,
            words,
            status: None,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the child ends, until `timeout` has passed, or until the user asks to stop.
    pub(crate) fn wait(&mut self, timeout: Duration, interrupt: &Interrupt) -> Result<End> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(End::Exited(status));
            }
            if interrupt.asked() {
                return Ok(End::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(End::TimedOut);
            }
            self.nap(left.min(POLL));
        }
    }

    /// Sleeps until the child ends or `time` has passed; an interrupted sleep is not an error.
    fn nap(&self, time: Duration) {
        let mut watched = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let _ = poll(&mut watched, Timespec::try_from(time).ok().as_ref());
    }

    /// The status if the child has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let waited = self.child.try_wait();
            self.status = waited.named(|| format!("waiting for process {}", self.id()))?;
        }
        Ok(self.status)
    }

    /// The last non-empty line that the child wrote to standard error.
    pub(crate) fn last_line(&self) -> String {
        last_line(&self.errors()).into()
    }

    /// Returns an error unless the child succeeded, or ended because the user asked to stop.
    pub(crate) fn judge(&self, end: End, engine: impl ToString, program: String) -> Result<()> {
        match end {
            End::Exited(status) if status.success() => Ok(()),
            End::Interrupted => Ok(()),
            end => Err(self.failed(engine, program, end.describe())),
        }
    }

    /// An error that says how the child failed.
    pub(crate) fn failed(&self, engine: impl ToString, program: String, how: String) -> LabError {
        LabError::Program {
            engine: engine.to_string(),
            program,
            how,
            last_line: self.last_line(),
            errors: self.errors(),
        }
    }

    /// Runs a preparation step and waits for its end; an error quotes the last line of standard
    /// error.
    pub(crate) fn finish(
        what: &str,
        command: &mut Command,
        longest: Duration,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let mut child = Child::spawn(command)?;
        match child.wait(longest, interrupt)? {
            End::Exited(status) if status.success() => Ok(()),
            end => Err(LabError::Preparation(format!(
                "{what}: {}{}",
                end.describe(),
                dash(&child.last_line())
            ))),
        }
    }

    /// The last 64 KiB that the child wrote to standard error.
    pub(crate) fn errors(&self) -> String {
        let length = self.words.metadata().map_or(0, |metadata| metadata.len());
        let kept = length.min(64 << 10);
        let mut tail = vec![0; kept as usize];
        if self.words.read_exact_at(&mut tail, length - kept).is_err() {
            return String::new();
        }
        String::from_utf8_lossy(&tail).into_owned()
    }

    /// Sends SIGTERM to the child and all processes below it, then SIGKILL to those that remain.
    /// fio's jobs have their own sessions, so signalling only the process group would miss them.
    pub(crate) fn end(&mut self) {
        let family: Vec<_> = descendants(self.id())
            .into_iter()
            .map(|pid| (pid, started(pid)))
            .collect();
        if !matches!(self.ended(), Ok(Some(_))) {
            let _ = kill_process(pid_of(self.id()), Signal::TERM);
            let _ = self.wait(TERM_TIMEOUT, &Interrupt::never());
        }
        let _ = kill_process_group(pid_of(self.id()), Signal::KILL);
        for (pid, start) in family {
            // A later process with the same pid has a different start time.
            if start.is_some() && started(pid) == start {
                let _ = kill_process(pid_of(pid), Signal::KILL);
            }
        }
        let _ = self.wait(TERM_TIMEOUT, &Interrupt::never());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// "exit status 3" or "killed by signal 9".
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

impl End {
    /// Describes, for messages, how the wait ended.
    pub(crate) fn describe(self) -> String {
        match self {
            End::Exited(status) => describe(status),
            End::TimedOut => "not finished in time".into(),
            End::Interrupted => "interrupted".into(),
        }
    }
}

fn words() -> rustix::io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    rustix::fs::memfd_create("errors", flags).map(File::from)
}

/// The process ID of a child, which is never zero.
fn pid_of(number: u32) -> Pid {
    Pid::from_raw(number as i32).unwrap_or(Pid::INIT)
}

/// Runs a command without input and returns its output. An error quotes the last line of standard
/// error, or says how the command ended.
pub(crate) fn output(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(io::Error::other(match last_line(&text(&output.stderr)) {
        "" => describe(output.status),
        line => line.to_owned(),
    }))
}

/// The last non-empty line.
fn last_line(text: &str) -> &str {
    let mut lines = text.lines().rev().map(str::trim);
    lines.find(|line| !line.is_empty()).unwrap_or("")
}

/// A command to run a program that [`in_path`] finds.
pub(crate) fn tool(program: &str) -> Command {
    Command::new(in_path(program).unwrap_or_else(|| program.into()))
}

/// The path of a program in PATH; sbin directories are searched too, since a user's PATH often
/// lacks them.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut places = std::env::split_paths(&path).chain(more);
    places.find_map(|place| is_program(&place, program.as_ref()))
}

fn is_program(place: &Path, program: &OsStr) -> Option<PathBuf> {
    let path = place.join(program);
    rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).ok()?;
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Child::spawn(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn the_last_line_of_a_failure_is_kept() {
        let mut child = shell("echo first >&2; echo '  the reason ' >&2; echo >&2; exit 3");
        let end = child
            .wait(Duration::from_secs(20), &Interrupt::never())
            .unwrap();
        assert_eq!(
            (end.describe(), child.last_line()),
            ("exit status 3".into(), "the reason".into())
        );
    }

    #[test]
    fn a_long_one_times_out_and_a_request_to_stop_ends_the_wait() {
        let mut child = shell("exec sleep 100");
        assert_eq!(
            child
                .wait(Duration::from_millis(10), &Interrupt::never())
                .unwrap(),
            End::TimedOut
        );
        let interrupt = Interrupt::never();
        interrupt.ask();
        assert_eq!(
            child.wait(Duration::from_secs(20), &interrupt).unwrap(),
            End::Interrupted
        );
        child.end();
        assert_eq!(
            describe(child.ended().unwrap().unwrap()),
            "killed by signal 15"
        );
    }

    #[test]
    fn ending_a_child_ends_grandchildren_in_sessions_of_their_own() {
        let mut child = shell("setsid sleep 1000 & wait");
        let mut family = Vec::new();
        while family.is_empty() {
            std::thread::sleep(Duration::from_millis(5));
            family = descendants(child.id());
        }
        child.end();
        let alive = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z"))
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while family.iter().any(alive) {
            assert!(Instant::now() < deadline, "{family:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn programs_are_found_where_they_are() {
        assert!(in_path("sh").is_some());
        assert!(in_path("no-such-program-here").is_none());
    }
}
