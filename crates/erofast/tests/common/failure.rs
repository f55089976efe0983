//! Checks how a command fails, for the tests of both programs.

use std::process::Output;

/// Checks for one line on standard error that contains `part`, and for this exit status.
#[track_caller]
pub fn fails(output: &Output, status: i32, part: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    // Notes are ignored: a run of the lab that another test killed may have left something to
    // remove, and other tests may keep the machine busy.
    let notes = ["erofast lab: removed ", "erofast: other programs take "];
    let is_note = |line: &&str| notes.iter().any(|note| line.starts_with(note));
    let lines = stderr.lines().filter(|line| !is_note(line));
    assert_eq!(lines.count(), 1, "{stderr}");
    assert!(stderr.contains(part), "{stderr}");
    assert!(
        output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
