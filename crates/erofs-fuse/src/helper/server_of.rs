//! The server of a mount, found from outside where it does not answer.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::umount;
use crate::respawn::Role;

/// A process that [`crate::respawn`] started for a mount.
struct Started {
    pid: i32,
    parent: i32,
    /// `None` of a mount helper in the background, and of a fork of it that serves.
    role: Option<Vec<u8>>,
}

/// The process number of the server of the mount at `path`, by the command lines of processes;
/// `None` where these cannot be read, or the program was given another path.
pub(crate) fn pid_of_server(path: &Path) -> Option<i32> {
    let place = umount::absolute(path).ok()?;
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let started = processes.filter_map(|entry| started(entry.file_name().to_str()?, &place));
    let started: Vec<_> = started.collect();
    let is = |process: &Started, role: Role| {
        let mark = process.role.as_deref();
        mark == Some(role.mark().as_bytes())
    };
    let is_started = |pid| started.iter().any(|process| process.pid == pid);
    // After an upgrade the last one.
    started.iter().rev().find_map(|process| match process {
        _ if is(process, Role::MountHelper) => Some(process.parent),
        _ if is_started(process.parent) => Some(process.pid),
        _ => None,
    })
}

fn started(pid: &str, place: &Path) -> Option<Started> {
    let pid: i32 = pid.parse().ok()?;
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let arguments: Vec<&[u8]> = line.strip_suffix(b"\0")?.split(|byte| *byte == 0).collect();
    let [_, before @ .., b"--", _, mountpoint] = arguments.as_slice() else {
        return None;
    };
    let role = match before {
        [b"mount", b"-f", ..] => None,
        [role, b"mount", b"-f", ..] => Some(role.to_vec()),
        _ => return None,
    };
    let mountpoint = umount::absolute(Path::new(OsStr::from_bytes(mountpoint))).ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc_pid_stat(5): after the name come the state and the parent.
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    (mountpoint == place).then_some(Started { pid, parent, role })
}
