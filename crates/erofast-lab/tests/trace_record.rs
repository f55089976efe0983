//! Tests how recordings end. Tests that record need root and tracefs; if either is missing, they
//! print that they were skipped.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::RwLockReadGuard;

use crate::failure::fails;
use crate::recorders;

/// A recording that has begun, in a directory of its own.
struct Recording {
    child: Child,
    directory: tempfile::TempDir,
    _among_others: RwLockReadGuard<'static, ()>,
}

fn can_record() -> bool {
    let can = std::fs::read_dir("/sys/kernel/tracing/instances").is_ok();
    if !can {
        println!("skipped: no tracefs, or no right to it");
    }
    can
}

/// A recording of `command` into `file`, to be started by `starter`.
fn record(starter: &str, arguments: &[&str], file: &Path, command: &[&str]) -> Command {
    let mut record = Command::new(starter);
    record
        .args(arguments)
        .args([env!("CARGO_BIN_EXE_erofast-lab"), "trace", "record", "-o"])
        .arg(file)
        .args(command);
    record
}

fn signal(name: &str, pid: u32) {
    let kill = Command::new("sh")
        .args(["-c", "kill -s \"$0\" \"$1\"", name, &pid.to_string()])
        .status();
    assert!(kill.expect("sh starts").success());
}

impl Recording {
    /// Starts a recording with a disposition of SIGHUP, given as an option of env(1).
    fn begin(hangup: &str) -> Option<Self> {
        if !can_record() {
            return None;
        }
        let among_others = recorders::among_others();
        let directory = tempfile::tempdir().expect("a directory");
        let mut child = record("env", &[hangup], &directory.path().join("trace"), &[])
            .stderr(Stdio::piped())
            .spawn()
            .expect("env starts");
        let mut line = String::new();
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        errors.read_line(&mut line).expect("a line");
        assert!(line.contains("recording; press Ctrl-C to stop"), "{line}");
        // The summary at the end finds no reader, which must not matter.
        drop(errors);
        Some(Self {
            child,
            directory,
            _among_others: among_others,
        })
    }

    fn instance(&self) -> PathBuf {
        let name = format!("erofast-{}.0", self.child.id());
        Path::new("/sys/kernel/tracing/instances").join(name)
    }

    /// Whether the program catches SIGHUP.
    fn catches_hangup(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("/proc is there");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.expect("a mask").trim(), 16);
        caught.expect("a mask") & 1 != 0
    }

    /// Checks that the recording ends, leaves its file, and leaves nothing in the kernel.
    fn ends(mut self) {
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "{status}");
        assert!(self.directory.path().join("trace").is_file());
        assert!(!self.instance().exists());
    }
}

#[test]
fn a_closed_terminal_ends_a_recording_as_a_signal_to_terminate_does() {
    for name in ["TERM", "HUP"] {
        let Some(recording) = Recording::begin("--default-signal=HUP") else {
            return;
        };
        assert!(recording.instance().exists());
        signal(name, recording.child.id());
        recording.ends();
    }
}

#[test]
fn under_nohup_a_closed_terminal_does_not_end_a_recording() {
    let Some(recording) = Recording::begin("--ignore-signal=HUP") else {
        return;
    };
    assert!(!recording.catches_hangup());
    signal("TERM", recording.child.id());
    recording.ends();
}

#[test]
fn a_thread_that_cannot_be_started_is_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trace");
    let _among_others = recorders::among_others();
    let output = record("env", &[], &file, &["--", "true"])
        // No address space has room for this stack.
        .env("RUST_MIN_STACK", (1_u64 << 60).to_string())
        .output();
    fails(&output.expect("env starts"), 1, "cannot start");
    assert!(!file.exists());
}

#[test]
fn a_trace_that_finds_no_room_leaves_no_part_of_it() {
    if !can_record() {
        return;
    }
    let _among_others = recorders::among_others();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trace");
    let limited = ["-c", "ulimit -f 1; trap '' XFSZ; exec \"$@\"", "sh"];
    let output = record("sh", &limited, &file, &["--", "true"]).output();
    fails(&output.expect("sh starts"), 1, "File too large");
    assert!(!file.exists());
    let output = record("env", &[], Path::new("-"), &["--", "true"]).output();
    fails(&output.expect("env starts"), 2, "--output -: ");
}

#[test]
fn a_signal_to_terminate_ends_the_command_and_the_recording() {
    if !can_record() {
        return;
    }
    let _among_others = recorders::among_others();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trace");
    let command = ["--", "sh", "-c", "echo begun; exec sleep 600"];
    let mut child = record("env", &[], &file, &command)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("env starts");
    let mut line = String::new();
    let mut words = BufReader::new(child.stdout.take().expect("a pipe"));
    words.read_line(&mut line).expect("a line");
    signal("TERM", child.id());
    let output = child.wait_with_output().expect("a child");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("sh ended with signal: 15"), "{errors}");
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(file.is_file(), "{errors}");
}
