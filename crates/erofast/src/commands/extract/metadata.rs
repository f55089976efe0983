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

/// A handle to an entry that was created.
#[derive(Clone, Copy, Debug)]
pub enum Handle<'a> {
    /// An open file or directory.
    Open(BorrowedFd<'a>),
    /// An `O_PATH` descriptor, for symlinks, devices and the like.
    StandIn(BorrowedFd<'a>),
}

impl Handle<'_> {
    fn chown(&self, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
        match self {
            Self::Open(fd) => rustix::fs::fchown(fd, uid, gid),
            Self::StandIn(fd) => rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH),
        }
    }

    fn set_xattr(&self, xattr: &Xattr) -> Result<()> {
        let (name, value) = (&xattr.name[..], &xattr.value);
        match self {
            Self::Open(fd) => rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()),
            Self::StandIn(fd) => {
                rustix::fs::setxattr(magic_link(*fd), name, value, XattrFlags::empty())
            }
        }
    }

    fn chmod(&self, mode: Mode) -> Result<()> {
        match self {
            Self::Open(fd) => rustix::fs::fchmod(fd, mode),
            Self::StandIn(fd) => rustix::fs::chmod(magic_link(*fd), mode),
        }
    }

    /// Modification time in seconds since 1970.
    fn modified(&self) -> Result<i64> {
        let (Self::Open(fd) | Self::StandIn(fd)) = self;
        Ok(rustix::fs::statat(fd, c"", AtFlags::EMPTY_PATH)?.st_mtime)
    }

    fn set_times(&self, times: &Timestamps) -> Result<()> {
        match self {
            Self::Open(fd) => rustix::fs::futimens(fd, times),
            Self::StandIn(fd) => rustix::fs::utimensat(fd, c"", times, AtFlags::EMPTY_PATH),
        }
    }
}

/// A path to exactly what the descriptor denotes, even a symlink.
fn magic_link(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Sets the metadata of an extracted entry. Failures are recorded in the journal.
pub fn apply(
    handle: Handle<'_>,
    inode: &Inode,
    xattrs: &[Xattr],
    keep: Keep,
    path: &[u8],
    journal: &Journal,
) {
    let owned = match keep.owner {
        true => own(handle, inode),
        false => Ok(()),
    };
    if let Err(error) = owned {
        journal.not_kept("ownership", path, error);
    }
    for xattr in xattrs.iter().filter(|_| keep.xattrs) {
        if let Err(error) = handle.set_xattr(xattr) {
            journal.not_kept(&xattr_kind(&xattr.name), path, error);
        }
    }
    if inode.file_type() != FileType::Symlink {
        let mode = mode(inode, owned, path, journal) & keep.permissions;
        if let Err(error) = handle.chmod(Mode::from_raw_mode(mode.into())) {
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
    if let Err(error) = handle.set_times(&times).and_then(|()| kept(handle, time)) {
        journal.not_kept("times", path, error);
    }
}

/// Checks that a time was kept: filesystems silently change times that they cannot represent. All
/// filesystems can represent the years 1902 to 2037.
fn kept(handle: Handle<'_>, time: Timespec) -> Result<()> {
    if i32::try_from(time.tv_sec).is_ok() || handle.modified()? == time.tv_sec {
        return Ok(());
    }
    Err(Errno::RANGE)
}

/// Sets owner and group, or only the group if changing the owner is not permitted.
fn own(handle: Handle<'_>, inode: &Inode) -> Result<()> {
    // The system call takes -1 to mean "unchanged".
    if inode.uid == u32::MAX || inode.gid == u32::MAX {
        return Err(Errno::INVAL);
    }
    let (uid, gid) = (Uid::from_raw(inode.uid), Gid::from_raw(inode.gid));
    handle.chown(Some(uid), Some(gid)).inspect_err(|_| {
        let _ = handle.chown(None, Some(gid));
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
