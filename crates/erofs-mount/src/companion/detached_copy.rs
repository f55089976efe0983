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
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags, makedev};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::net::SendFlags;

use crate::child::ChildProcess;
use crate::mounting::{Mounted, device_number, status};
use erofs_fuse::error::Error;
use erofs_fuse::packets;

/// Makes a copy in a child process.
///
/// # Errors
/// Returns an error if the mount is gone, is not the topmost one at its path, or may not be copied.
pub(crate) fn copy(mounted: &Mounted) -> Result<OwnedFd, Error> {
    let place = &mounted.mountpoint;
    let (ours, theirs) = packets::socket_pair()?;
    let device = mounted.id.device.clone();
    let child = ChildProcess::fork(theirs, &[], || send_copy(place, &device));
    let child = child.map_err(Error::std_io("cannot copy the mount"))?;
    let received = packets::receive(&ours);
    let status = child.wait();
    let refused =
        |errno: Errno| Error::io(format!("cannot copy the mount {}", place.display()))(errno);
    match received {
        Ok((_, Some(root))) => Ok(root),
        _ => {
            let number = status.ok().and_then(|status| status.code());
            Err(refused(Errno::from_raw_os_error(number.unwrap_or(0))))
        }
    }
}

/// Runs in a child process whose standard input is the socket. The exit status is an errno.
fn send_copy(place: &Path, device: &str) -> i32 {
    let sent = in_own_namespace(place, device).and_then(|copy| {
        let socket = rustix::stdio::stdin();
        let sent = packets::send_with(socket, b"copy", Some(&copy), SendFlags::NOSIGNAL);
        sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    });
    sent.map_or_else(Errno::raw_os_error, |()| 0)
}

/// Runs in a child process, which has one thread.
pub(crate) fn in_own_namespace(place: &Path, device: &str) -> Result<OwnedFd, Errno> {
    let own = sys::namespace::own_mounts();
    own.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let no_link = OpenTreeFlags::from_bits_retain(AtFlags::SYMLINK_NOFOLLOW.bits());
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | no_link;
    let copy = open_tree(rustix::fs::CWD, place, flags)?;
    // By now this mount may be covered by another one, or its path may lead to another one.
    let status = status(&copy, StatxFlags::empty())?;
    let found = makedev(status.stx_dev_major, status.stx_dev_minor);
    match device_number(device) == Some(found) {
        true => Ok(copy),
        false => Err(Errno::XDEV),
    }
}
