//! Mount points: what is mounted where, and unmounting it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::process::{Child, in_path};
use crate::{Interrupt, LabError, Result};

/// How long unknown programs may keep a mount busy after the last known one has ended.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether something is mounted exactly there. Reads mountinfo, which never blocks on a dead
/// daemon.
pub(crate) fn is_mounted(point: &Path) -> bool {
    let Ok(table) = fs::read("/proc/self/mountinfo") else {
        return false;
    };
    table
        .split(|&byte| byte == b'\n')
        .filter_map(mount_point)
        .any(|mounted| mounted == point)
}

/// The file system that a path is on: "ext4 on /dev/vda1".
pub(crate) fn filesystem(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let mounts = table.split(|&byte| byte == b'\n').filter_map(|line| {
        let point = mount_point(line)?;
        path.starts_with(&point).then_some((point, line))
    });
    // The last one of the longest: mounts cover those before them.
    let (_, line) = mounts.max_by_key(|(point, _)| point.as_os_str().len())?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_once(" - ")?.1.split(' ');
    Some(format!("{} on {}", words.next()?, words.next()?))
}

/// The fifth field of a line of mountinfo, with its octal escapes undone.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let field = line.split(|&byte| byte == b' ').nth(4)?;
    Some(PathBuf::from(OsString::from_vec(unescape(field))))
}

fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match (first, octal) {
            (b'\\', Some(byte)) => {
                plain.push(byte);
                rest = &after[3..];
            }
            _ => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

/// Unmounts; waits a while for a busy mount. A mount that stays busy is detached, so that nothing
/// stays mounted, and that is reported.
pub(crate) fn unmount_within_timeout(point: &Path) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match unmount_once(point) {
            Ok(()) => return Ok(()),
            // Not mounted (any more): what was wanted.
            Err(Errno::INVAL) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10))
            }
            Err(reason) => {
                let _ = unmount(point, UnmountFlags::DETACH);
                return Err(LabError::io("unmounting", point, reason));
            }
        }
    }
}

fn unmount_once(point: &Path) -> rustix::io::Result<()> {
    match unmount(point, UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => by_fusermount(point),
        other => other,
    }
}

/// Without root only fusermount3 may unmount, and only FUSE.
fn by_fusermount(point: &Path) -> rustix::io::Result<()> {
    let program = in_path("fusermount3").ok_or(Errno::PERM)?;
    let mut child =
        Child::spawn(Command::new(program).arg("-u").arg(point)).map_err(|_| Errno::PERM)?;
    let _ = child.wait(TIMEOUT, &Interrupt::never());
    if is_mounted(point) {
        Err(Errno::BUSY)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let line = b"36 35 98:0 /a /mnt/with\\040space rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(mount_point(line).unwrap(), Path::new("/mnt/with space"));
        assert_eq!(unescape(b"a\\134b\\01"), b"a\\b\\01");
    }

    #[test]
    fn proc_is_mounted_and_a_plain_directory_is_not() {
        assert!(is_mounted(Path::new("/proc")));
        assert!(!is_mounted(Path::new("/proc/self")));
    }
}
