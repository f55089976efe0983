//! Programs of the fetched packages, run with these as their root directory.
//!
//! In a mount namespace of their own: the devices they need are there for them alone, and whatever
//! ends the last of them takes the mounts along. Without root, in a user namespace too.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Child, End, in_path};
use crate::{Interrupt, LabError, Result};

/// No single step of the preparation takes longer.
const LONGEST: Duration = Duration::from_secs(1800);
/// Runs inside of the new namespace; its words are the root, then the program.
const ENTER: &str = r#"mount --rbind /dev "$0/dev" && exec chroot "$0" "$@""#;

/// The way in.
#[derive(Debug)]
pub(super) struct Sandbox {
    root: PathBuf,
}

impl Sandbox {
    pub(super) fn new(root: PathBuf) -> Self {
        Sandbox { root }
    }

    /// A program inside; add arguments as usual.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command
            .args(["--mount", "--", "/bin/sh", "-c", ENTER])
            .arg(&self.root)
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("TMPDIR", "/build");
        command
    }

    /// A shell script inside, to its end.
    pub(super) fn shell(&self, what: &str, script: &str, interrupt: &Interrupt) -> Result<()> {
        finish(
            what,
            self.command("/bin/sh").args(["-ec", script]),
            interrupt,
        )
    }
}

/// Runs a command to its end; a failure carries the last line of its output.
pub(super) fn finish(what: &str, command: &mut Command, interrupt: &Interrupt) -> Result<()> {
    let mut child = Child::spawn(command)?;
    match child.wait(LONGEST, interrupt)? {
        End::Exited(status) if status.success() => Ok(()),
        end => Err(fault(what, &end.describe(), &child.last_line())),
    }
}

/// What a command prints.
pub(super) fn output(what: &str, command: &mut Command) -> Result<String> {
    let output = command
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|source| LabError::io("starting", Path::new(command.get_program()), source))?;
    let last = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let how = End::Exited(output.status).describe();
        return Err(fault(what, &how, last.lines().last().unwrap_or("")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(super) fn fault(what: &str, how: &str, last_line: &str) -> LabError {
    let dash = if last_line.is_empty() { "" } else { ": " };
    LabError::Kernel(format!("{what}: {how}{dash}{last_line}"))
}

/// One line about the first of these programs that is not installed.
pub(super) fn need(programs: &[(&str, &str)]) -> Result<()> {
    match programs
        .iter()
        .find(|(program, _)| in_path(program).is_none())
    {
        None => Ok(()),
        Some((program, package)) => Err(LabError::Kernel(format!(
            "{program} is not installed (Debian package: {package})"
        ))),
    }
}
