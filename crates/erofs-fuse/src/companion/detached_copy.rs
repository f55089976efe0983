//! A copy of the mount that is at no path (open_tree(2)): who looks names up in it does not keep
//! the mount busy, so that any program can unmount it at any moment.
//!
//! A process that resolves the path of the mount uses it while it does so. So the copy is made in a
//! mount namespace of its own, by a child process that ends at once: there the path leads to
//! another copy. Ordinary users get a user namespace with it; where that is refused there is no
//! copy, and no name is looked up.
//!
//! A copy keeps the filesystem when the mount is unmounted, and with it the server. So it is
//! dropped as soon as the mount is gone from the table, and when it was not needed for a while
//! ([`CopiedMount`](super::copied_mount)).

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags, makedev};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::net::SendFlags;

use crate::child::ChildProcess;
use crate::error::Error;
use crate::mounting::{Mounted, device_number, status};
use crate::packets;

/// Makes one, in a child.
///
/// # Errors
/// The mount is gone, is not the topmost one at its path, or may not be copied.
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

/// In a child, whose standard input is the socket. The exit status is the number of an error.
fn send_copy(place: &Path, device: &str) -> i32 {
    let sent = in_own_namespace(place, device).and_then(|copy| {
        let socket = rustix::stdio::stdin();
        let sent = packets::send_with(socket, b"copy", Some(&copy), SendFlags::NOSIGNAL);
        sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    });
    sent.map_or_else(Errno::raw_os_error, |()| 0)
}

/// In a child, which has one thread.
pub(crate) fn in_own_namespace(place: &Path, device: &str) -> Result<OwnedFd, Errno> {
    let own = sys::namespace::own_mounts();
    own.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let no_link = OpenTreeFlags::from_bits_retain(AtFlags::SYMLINK_NOFOLLOW.bits());
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | no_link;
    let copy = open_tree(rustix::fs::CWD, place, flags)?;
    // Another mount may cover it, or lie there by now.
    let status = status(&copy, StatxFlags::empty())?;
    let found = makedev(status.stx_dev_major, status.stx_dev_minor);
    match device_number(device) == Some(found) {
        true => Ok(copy),
        false => Err(Errno::XDEV),
    }
}
