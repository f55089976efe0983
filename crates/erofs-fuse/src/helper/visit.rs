//! Looks up names of a mount, so that the kernel caches them.
//!
//! Works in a detached copy of the mount (open_tree(2)), so that the mount can be unmounted.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, ResolveFlags, openat2, readlinkat, statat};
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::error::Error;

/// The kernel asks for as many bytes of entries with one request as the program has room for.
const ENTRIES_BYTES: usize = 256 << 10;

/// Lists the directories of paths that are separated by zeros.
pub(super) fn list(mountpoint: &Path, paths: &[u8]) -> Result<(), Error> {
    let root = root(mountpoint)?;
    let mut room = vec![MaybeUninit::uninit(); ENTRIES_BYTES];
    for path in paths.split(|byte| *byte == 0) {
        // What cannot be opened is left to the launch.
        let Ok(directory) = open(&root, path, OFlags::RDONLY) else {
            continue;
        };
        let mut entries = RawDir::new(directory, &mut room);
        while let Some(Ok(_)) = entries.next() {}
    }
    Ok(())
}

/// Looks the names up; links are read too.
pub(super) fn look_up(mountpoint: &Path, paths: &[u8]) -> Result<(), Error> {
    let root = root(mountpoint)?;
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

fn root(mountpoint: &Path) -> Result<OwnedFd, Error> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    // Without the right to copy mounts, the mount is in use for the moment.
    open_tree(CWD, mountpoint, flags)
        .or_else(|_| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(mountpoint, flags, Mode::empty())
        })
        .map_err(Error::io(format!("cannot open {}", mountpoint.display())))
}

/// A directory of the mount, by a path that leads nowhere else.
fn open(root: &OwnedFd, path: &[u8], access: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    openat2(root, path, flags, Mode::empty(), inside)
}
