//! Runs the program `erofast` with a time limit, and returns its output.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(1);

/// Time limit for checking the options; if the check takes longer, they are accepted.
const CHECK: Duration = Duration::from_secs(20);

/// An image that is in no cache, for a mount that contacts no server.
const NO_IMAGE: &str = "oci://127.0.0.1:1/none@sha256:\
    0000000000000000000000000000000000000000000000000000000000000000#blob";

/// How many bytes of the program's output are read.
const MOST: u64 = 16 << 20;

/// The program `erofast`.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

impl Program {
    /// The program `named`, or else the one beside this program, or else the one in PATH.
    pub fn find(named: Option<&Path>) -> Self {
        let beside = || {
            let own = std::env::current_exe().ok()?;
            Some(own.with_file_name("erofast")).filter(|path| path.is_file())
        };
        let named = named.map(Path::to_owned).or_else(beside);
        Self(named.unwrap_or_else(|| "erofast".into()))
    }

    /// Checks that the program can be started.
    pub fn check(&self) -> Result<(), String> {
        let version = self.run(&[OsStr::new("--version")], Instant::now() + CHECK);
        version.map(drop)
    }

    /// Checks mount options by attempting a mount that must fail. The error is one line.
    pub fn check_options(&self, options: &[String], folder: &Path) -> Result<(), String> {
        let all = [options, &["offline=on".into()]].concat().join(",");
        let arguments = ["mount", "-o", &all, NO_IMAGE].map(OsStr::new);
        let arguments = [&arguments[..], &[folder.as_os_str()]].concat();
        let Err(line) = self.run(&arguments, Instant::now() + CHECK) else {
            return Ok(());
        };
        // Other failures may not recur when a layer is mounted.
        let is_of_word = |byte: char| byte.is_ascii_alphanumeric() || "._".contains(byte);
        let words: HashSet<_> = line.split(|byte| !is_of_word(byte)).collect();
        let given = options.iter().flat_map(|options| options.split(','));
        let mut names = given.filter_map(|option| option.split('=').next());
        match names.any(|name| words.contains(name) && !name.is_empty()) {
            true => Err(format!("-o {}: {line}", options.join(","))),
            false => Ok(()),
        }
    }

    /// Runs the program until `deadline` at the latest. Returns its standard output, or one line
    /// that says why it failed.
    pub fn run(&self, arguments: &[&OsStr], deadline: Instant) -> Result<Vec<u8>, String> {
        let failed = |error: io::Error| format!("cannot start {}: {error}", self.0.display());
        let (mut out, mut errors) = (buffer().map_err(failed)?, buffer().map_err(failed)?);
        let mut child = Command::new(&self.0)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out.try_clone().map_err(failed)?)
            .stderr(errors.try_clone().map_err(failed)?)
            // Mounts neither report to our service manager nor get our terminal's signals.
            .env_remove("NOTIFY_SOCKET")
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let waited = wait(&mut child, deadline).inspect_err(|_| {
            // A mount that nobody waits for must not appear later.
            let _ = child.kill().and_then(|()| child.wait());
        });
        let Some(status) = waited.map_err(failed)? else {
            return Err("not ready within the time limit".into());
        };
        match status.success() {
            true => contents(&mut out).map_err(failed),
            false => Err(last_line(&mut errors, status)),
        }
    }
}

/// A file in memory: unlike with a pipe, nobody has to wait for a process that keeps it open.
fn buffer() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("erofast-output", MemfdFlags::CLOEXEC)?.into())
}

fn contents(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn last_line(errors: &mut File, status: ExitStatus) -> String {
    let bytes = contents(errors).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    let line = line.map(|line| line.strip_prefix("erofast: ").unwrap_or(line));
    line.map_or_else(|| format!("erofast ended with {status}"), str::to_owned)
}

/// Waits for the child. Returns its exit status, or `None` if it had to be killed.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    if ends_by(child, deadline)? {
        return child.wait().map(Some);
    }
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        // On SIGTERM, the program removes its mount.
        let _ = kill_process(pid, Signal::TERM);
    }
    if !ends_by(child, Instant::now() + GRACE)? {
        child.kill()?;
    }
    child.wait()?;
    Ok(None)
}

fn ends_by(child: &Child, deadline: Instant) -> io::Result<bool> {
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<Vec<u8>, String> {
        let shell = Program::find(Some(Path::new("/bin/sh")));
        let arguments = ["-c", script].map(OsStr::new);
        shell.run(&arguments, Instant::now() + limit)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_output_is_returned_and_an_error_is_its_last_line() {
        assert_eq!(shell("echo out; echo notice >&2", LONG).unwrap(), b"out\n");
        let failed = shell(
            "echo a notice >&2; echo 'erofast: x: why' >&2; exit 1",
            LONG,
        );
        assert_eq!(failed.unwrap_err(), "x: why");
        let failed = shell("exit 3", LONG).unwrap_err();
        assert!(failed.contains('3'), "{failed}");
        let none = Program::find(Some(Path::new("/none/erofast")));
        let failed = none.run(&[], Instant::now() + LONG).unwrap_err();
        assert!(failed.contains("/none/erofast"), "{failed}");
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_and_one_that_it_left_keeps_nobody_waiting() {
        let start = Instant::now();
        let failed = shell("trap '' TERM; exec sleep 100", Duration::from_millis(50));
        assert!(failed.unwrap_err().contains("time limit"));
        assert_eq!(shell("sleep 5 & echo out", LONG).unwrap(), b"out\n");
        assert!(start.elapsed() < LONG);
    }
}
