//! Owner, xattrs, mode and times of extracted entries.
//!
//! The order matters: changing the owner drops `security.capability` and the setuid bit, an ACL
//! changes the mode, and everything changes the times.

use std::os::fd::{AsRawFd, BorrowedFd};

use erofs_engine::erofs_format::{FileType, Inode, Xattr};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::{Errno, Result};

use super::journal::Journal;
use super::target::Keep;

/// The setuid and setgid bits.
const SET_ID: u16 = 0o6000;

/// If a call failed because the descriptor was opened with `O_PATH`, repeats it with a path. The
/// path leads to exactly what the descriptor denotes, even a symlink.
fn or_by_path(
    entry: BorrowedFd<'_>,
    called: Result<()>,
    by_path: impl FnOnce(String) -> Result<()>,
) -> Result<()> {
    match called {
        Err(Errno::BADF) => by_path(format!("/proc/self/fd/{}", entry.as_raw_fd())),
        called => called,
    }
}

fn set_xattr(entry: BorrowedFd<'_>, xattr: &Xattr) -> Result<()> {
    let (name, value, flags) = (&xattr.name[..], &xattr.value, XattrFlags::empty());
    let called = rustix::fs::fsetxattr(entry, name, value, flags);
    let by_path = |path| rustix::fs::setxattr(path, name, value, flags);
    or_by_path(entry, called, by_path)
}

fn chmod(entry: BorrowedFd<'_>, mode: Mode) -> Result<()> {
    let called = rustix::fs::fchmod(entry, mode);
    or_by_path(entry, called, |path| rustix::fs::chmod(path, mode))
}

fn chown(entry: BorrowedFd<'_>, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
    rustix::fs::chownat(entry, c"", uid, gid, AtFlags::EMPTY_PATH)
}

/// Sets the times. Unlike [`or_by_path`], this needs no /proc.
fn set_times(entry: BorrowedFd<'_>, times: &Timestamps) -> Result<()> {
    match rustix::fs::futimens(entry, times) {
        Err(Errno::BADF) => rustix::fs::utimensat(entry, c"", times, AtFlags::EMPTY_PATH),
        set => set,
    }
}

/// Sets the metadata of an extracted entry, and records failures in the journal. The entry's
/// descriptor was opened with `O_PATH` unless the entry is a file or a directory.
pub fn apply(
    entry: BorrowedFd<'_>,
    inode: &Inode,
    xattrs: &[Xattr],
    keep: Keep,
    path: &[u8],
    journal: &Journal,
) {
    let owned = match keep.owner {
        true => own(entry, inode),
        false => Ok(()),
    };
    if let Err(error) = owned {
        journal.not_kept("ownership", path, error);
    }
    for xattr in xattrs.iter().filter(|_| keep.xattrs) {
        if let Err(error) = set_xattr(entry, xattr) {
            journal.not_kept(&xattr_kind(&xattr.name), path, error);
        }
    }
    if inode.file_type() != FileType::Symlink {
        let mode = mode(inode, owned, path, journal) & keep.permissions;
        if let Err(error) = chmod(entry, Mode::from_raw_mode(mode.into())) {
            journal.not_kept("permissions", path, error);
        }
    }
    let time = Timespec {
        tv_sec: inode.mtime,
        tv_nsec: inode.mtime_nsec.into(),
    };
    // EROFS has only one timestamp.
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    if let Err(error) = set_times(entry, &times).and_then(|()| kept(entry, time)) {
        journal.not_kept("times", path, error);
    }
}

/// Checks that a time was kept: filesystems silently change times that they cannot represent. All
/// filesystems can represent the years 1902 to 2037.
fn kept(entry: BorrowedFd<'_>, time: Timespec) -> Result<()> {
    if i32::try_from(time.tv_sec).is_ok() {
        return Ok(());
    }
    match rustix::fs::statat(entry, c"", AtFlags::EMPTY_PATH)?.st_mtime == time.tv_sec {
        true => Ok(()),
        false => Err(Errno::RANGE),
    }
}

/// Sets owner and group, or only the group if changing the owner is not permitted.
fn own(entry: BorrowedFd<'_>, inode: &Inode) -> Result<()> {
    // The system call takes -1 to mean "unchanged".
    if inode.uid == u32::MAX || inode.gid == u32::MAX {
        return Err(Errno::INVAL);
    }
    let (uid, gid) = (Uid::from_raw(inode.uid), Gid::from_raw(inode.gid));
    chown(entry, Some(uid), Some(gid)).inspect_err(|_| {
        let _ = chown(entry, None, Some(gid));
    })
}

/// Returns the permissions, without the setuid and setgid bits if the owner could not be set.
fn mode(inode: &Inode, owned: Result<()>, path: &[u8], journal: &Journal) -> u16 {
    let mut mode = inode.mode & 0o7777;
    if let Err(error) = owned
        && inode.file_type() == FileType::Regular
        && mode & SET_ID != 0
    {
        journal.not_kept("setuid and setgid bits", path, error);
        mode &= !SET_ID;
    }
    mode
}

/// The namespace of an attribute in words, such as `security. xattrs`.
fn xattr_kind(name: &[u8]) -> String {
    let end = name.iter().position(|&byte| byte == b'.');
    let namespace = end.map_or(name, |end| &name[..=end]);
    format!("{} xattrs", String::from_utf8_lossy(namespace))
}

#[cfg(test)]
mod tests {
    use super::xattr_kind;

    #[test]
    fn xattrs_are_counted_by_namespace() {
        assert_eq!(xattr_kind(b"security.capability"), "security. xattrs");
        assert_eq!(xattr_kind(b"trusted.overlay.opaque"), "trusted. xattrs");
    }
}
