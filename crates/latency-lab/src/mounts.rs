//! The table of mounts, and unmounting.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, UnmountFlags, open_tree, unmount};

use crate::error::Doing;
use crate::process::{Child, tool};
use crate::{Interrupt, Result};

/// How long unknown programs may keep a mount busy after the last known one has ended.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A line of mountinfo.
#[derive(Debug)]
pub struct Mount<'a> {
    /// The kernel's own dev_t: twenty bits for the minor number.
    pub device: u32,
    pub(crate) root: &'a str,
    /// The mount point.
    pub point: PathBuf,
    /// The file system type, such as "ext4" or "fuse.erofast".
    pub kind: &'a str,
    source: &'a str,
    /// Options of the file system itself, rather than of this mount.
    pub(crate) super_options: &'a str,
}

impl<'a> Mount<'a> {
    /// Parses a line of mountinfo; none if the line is malformed.
    pub fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let mut after = after.split(' ');
        let (major, minor) = before.next()?.split_once(':')?;
        let (root, point) = (before.next()?, before.next()?);
        Some(Mount {
            device: major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?,
            root,
            point: unescape(point).into(),
            kind: after.next()?,
            source: after.next()?,
            super_options: after.next()?,
        })
    }
}

/// The content of mountinfo, which can be read even if the daemon of a mount hangs. Mount points
/// whose paths are not UTF-8 are not found.
pub fn mountinfo() -> String {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&table).into_owned()
}

/// How many mounts have been made on the machine, in all namespaces: each mount gets the next
/// number (Linux 6.8 and later, as root). The query itself makes a mount, which is counted too.
pub(crate) fn made() -> Option<u64> {
    /// `STATX_MNT_ID_UNIQUE`.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let clone = open_tree(CWD, "/", flags).ok()?;
    let found = statx(&clone, "", AtFlags::EMPTY_PATH, UNIQUE).ok()?;
    let is_unique = found.stx_mask & UNIQUE.bits() != 0;
    is_unique.then_some(found.stx_mnt_id)
}

/// Whether something is mounted exactly at `point`.
pub(crate) fn is_mounted(point: &Path) -> bool {
    let table = mountinfo();
    let mut mounts = table.lines().filter_map(Mount::parse);
    mounts.any(|mount| mount.point == point)
}

/// The mount points at a path and below it, in the order of mounting.
pub(crate) fn below(path: &Path) -> Vec<PathBuf> {
    let table = mountinfo();
    let points = table.lines().filter_map(Mount::parse);
    let points = points.map(|mount| mount.point);
    points.filter(|point| point.starts_with(path)).collect()
}

/// The file system on which a path is, and its source: "ext4 on /dev/vda1".
pub(crate) fn filesystem(path: &Path) -> Option<String> {
    let (path, table) = (path.canonicalize().ok()?, mountinfo());
    let mounts = table.lines().filter_map(Mount::parse);
    let mounts = mounts.filter(|mount| path.starts_with(&mount.point));
    // Of several mounts with the longest path, the last one counts, because later mounts cover
    // earlier ones.
    let mount = mounts.max_by_key(|mount| mount.point.as_os_str().len())?;
    Some(format!("{} on {}", mount.kind, mount.source))
}

/// Decodes the kernel's escape sequences. The sequence that stands for a backslash must be decoded
/// last.
fn unescape(field: &str) -> String {
    let escapes = [
        ("040", " "),
        ("011", "\t"),
        ("012", "\n"),
        ("043", "#"),
        ("134", "\\"),
    ];
    escapes
        .iter()
        .fold(field.to_owned(), |text, (octal, plain)| {
            text.replace(&format!("\\{octal}"), plain)
        })
}

/// Unmounts, waiting for a busy mount up to a time limit. If the mount stays busy, detaches it, so
/// that nothing stays mounted, and returns an error.
pub(crate) fn unmount_within_timeout(point: &Path) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match unmount_once(point) {
            Ok(()) => return Ok(()),
            // It is not mounted or no longer mounted, as intended.
            Err(Errno::INVAL) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10))
            }
            Err(reason) => {
                let _ = unmount(point, UnmountFlags::DETACH);
                return Err(reason).doing("unmounting", point);
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

/// Without root, only fusermount3 may unmount, and it unmounts only FUSE mounts.
fn by_fusermount(point: &Path) -> rustix::io::Result<()> {
    let mut child =
        Child::spawn(tool("fusermount3").arg("-u").arg(point)).map_err(|_| Errno::PERM)?;
    let _ = child.wait(TIMEOUT, &Interrupt::never());
    match is_mounted(point) {
        true => Err(Errno::BUSY),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let line = "36 35 98:0 /a /mnt/with\\040space rw,noatime master:1 - ext3 /dev/root rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.point, Path::new("/mnt/with space"));
        assert_eq!(
            (mount.kind, mount.source, mount.super_options),
            ("ext3", "/dev/root", "rw")
        );
        let line = "40 22 0:44 / /mnt/a\\040b ro,nosuid shared:1 - fuse.erofast /i.erofs ro";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.device, mount.kind), (44, "fuse.erofast"));
        assert_eq!(unescape("a\\134040\\01"), "a\\040\\01");
    }

    #[test]
    fn proc_is_mounted_and_a_plain_directory_is_not() {
        assert!(is_mounted(Path::new("/proc")));
        assert!(!is_mounted(Path::new("/proc/self")));
    }
}
