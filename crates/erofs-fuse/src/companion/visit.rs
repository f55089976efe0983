//! Looks up names of a mount, so that the kernel caches them.
//!
//! Works in a [detached copy](super::detached_copy) of the mount, and ends when the mount is gone.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, ResolveFlags, openat2, readlinkat, statat};

use super::detached_copy::DetachedCopy;
use crate::error::Error;

/// The kernel asks for as many bytes of entries with one request as the program has room for.
const ENTRIES_BYTES: usize = 256 << 10;

/// Lists the directories of paths that are separated by zeros.
pub(crate) fn list(copy: &mut DetachedCopy, paths: &[u8]) -> Result<(), Error> {
    let mut room = vec![MaybeUninit::uninit(); ENTRIES_BYTES];
    each(copy, paths, |root, path| {
        // Skip a directory that cannot be opened: the launch meets the error itself.
        if let Ok(directory) = open(root, path, OFlags::RDONLY) {
            let mut entries = RawDir::new(directory, &mut room);
            while let Some(Ok(_)) = entries.next() {}
        }
    })
}

/// Looks the names up; links are read too.
pub(crate) fn look_up(copy: &mut DetachedCopy, paths: &[u8]) -> Result<(), Error> {
    each(copy, paths, |root, path| {
        let at = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let Ok(parent) = open(root, parent, OFlags::PATH) else {
            return;
        };
        if matches!(name, b"" | b"." | b"..") {
            return;
        }
        let found = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFLNK) {
            let _ = readlinkat(&parent, name, Vec::new());
        }
    })
}

/// Calls `visit` with the root and each path.
fn each(
    copy: &mut DetachedCopy,
    paths: &[u8],
    mut visit: impl FnMut(&OwnedFd, &[u8]),
) -> Result<(), Error> {
    copy.make()?;
    for path in paths.split(|byte| *byte == 0) {
        // The mount is gone: the rest is not needed.
        let Some(root) = copy.root() else { break };
        visit(root, path);
    }
    Ok(())
}

/// A directory of the mount, by a path that leads nowhere else.
fn open(root: &OwnedFd, path: &[u8], access: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    openat2(root, path, flags, Mode::empty(), inside)
}
