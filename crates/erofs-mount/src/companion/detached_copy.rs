//! A copy of the mount that has no path (open_tree(2)). Looking names up in the copy does not keep
//! the mount busy, so any program can unmount the mount at any time.
//!
//! The first copy can be made [with the mount](crate::mounting::Made), before the mount has a path.
//! Later, resolving the path of the mount would keep the mount busy. Therefore a short-lived child
//! process makes the copy in a separate mount namespace, in which the path leads to a copy of the
//! mount, so that the mount itself does not become busy. Ordinary users get a user namespace along
//! with it; if that is refused, there is no copy, and no name is looked up.
//!
//! A copy keeps the filesystem, and with it the server, alive after the mount is unmounted.
//! Therefore the copy is dropped as soon as the mount is gone from the table, or earlier if it has
//! not been needed for a while ([`CopiedMount`](super::copied_mount)).

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, StatxFlags, makedev};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::mounting::{Mounted, device_number, status};

/// Makes a copy, in a child process that has one thread and does nothing else.
pub(super) fn copy(mounted: &Mounted) -> Result<OwnedFd, Errno> {
    sys::namespace::own_mounts()?;
    let no_link = OpenTreeFlags::from_bits_retain(AtFlags::SYMLINK_NOFOLLOW.bits());
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | no_link;
    let copy = open_tree(rustix::fs::CWD, &mounted.mountpoint, flags)?;
    // By now this mount may be covered by another one, or its path may lead to another one.
    let status = status(&copy, StatxFlags::empty())?;
    let found = makedev(status.stx_dev_major, status.stx_dev_minor);
    match device_number(&mounted.id.device) == Some(found) {
        true => Ok(copy),
        false => Err(Errno::XDEV),
    }
}
