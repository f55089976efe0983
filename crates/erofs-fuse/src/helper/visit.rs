//! Looks up names of a mount, so that the kernel caches them.
//!
//! Works in a detached copy of the mount (open_tree(2)), so that the mount can be unmounted.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, ResolveFlags, openat2, readlinkat, statat};
use rustix::mount::{OpenTreeFlags, open_tree};

use super::mounted::Mounted;
use crate::error::Error;

/// The kernel asks for as many bytes of entries with one request as the program has room for.
const ENTRIES_BYTES: usize = 256 << 10;

/// Lists the directories of paths that are separated by zeros.
pub(super) fn list(mounted: &Mounted, paths: &[u8]) -> Result<(), Error> {
    let root = root(mounted)?;
    let mut room = vec![MaybeUninit::uninit(); ENTRIES_BYTES];
    for path in paths.split(|byte| *byte == 0) {
        // Skip a directory that cannot be opened: the launch meets the error itself.
        let Ok(directory) = open(&root, path, OFlags::RDONLY) else {
            continue;
        };
        let mut entries = RawDir::new(directory, &mut room);
        while let Some(Ok(_)) = entries.next() {}
    }
    Ok(())
}

/// Looks the names up; links are read too.
pub(super) fn look_up(mounted: &Mounted, paths: &[u8]) -> Result<(), Error> {
    let root = root(mounted)?;
    for path in paths.split(|byte| *byte == 0) {
        let at = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let Ok(parent) = open(&root, parent, OFlags::PATH) else {
            continue;
        };
        if matches!(name, b"" | b"." | b"..") {
            continue;
        }
        let found = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFLNK) {
            let _ = readlinkat(&parent, name, Vec::new());
        }
    }
    Ok(())
}

/// The root of the mount, if nothing is mounted over it.
fn root(mounted: &Mounted) -> Result<OwnedFd, Error> {
    let at = &mounted.mountpoint;
    let covered = || Error::mountpoint(at, "is not the topmost mount");
    let root = mounted.id.open(at)?.ok_or_else(covered)?;
    // Without the right to copy mounts, the mount is in use for the moment.
    Ok(copy_of(&root).unwrap_or(root))
}

fn copy_of(root: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(root, "", flags)
}

/// A directory of the mount, by a path that leads nowhere else.
fn open(root: &OwnedFd, path: &[u8], access: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    openat2(root, path, flags, Mode::empty(), inside)
}
