//! A copy of the mount that is at no path (open_tree(2)): who looks names up in it does not keep
//! the mount busy, so that any program can unmount it at any moment.
//!
//! A process that resolves the path of the mount uses it while it does so. So the copy is made in a
//! mount namespace of its own, by a child process that ends at once: there the path leads to
//! another copy. Ordinary users get a user namespace with it; where that is refused there is no
//! copy, and no name is looked up.
//!
//! A copy keeps the filesystem when the mount is unmounted, and with it the server. So it is
//! dropped as soon as the mount is gone from the table, and when it was not needed for a while.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::fs::{AtFlags, StatxFlags, makedev};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::net::SendFlags;

use crate::child::ChildProcess;
use crate::error::Error;
use crate::mounting::{Mounted, device_number, read_table, status};
use crate::packets;
use crate::poll::first_ready;

/// Requests of a walk or a launch come faster. Making a copy takes a millisecond.
const KEPT: Duration = Duration::from_millis(50);

/// The copy of one mount, made when it is needed.
pub(crate) struct DetachedCopy {
    mounted: Mounted,
    made: Option<Made>,
}

struct Made {
    root: OwnedFd,
    /// The mount table, which shows by poll(2) that it has changed.
    table: File,
}

impl DetachedCopy {
    pub(crate) fn new(mounted: Mounted) -> Self {
        Self {
            mounted,
            made: None,
        }
    }

    /// Makes one, unless it is there.
    ///
    /// # Errors
    /// The mount is gone, is not the topmost one at its path, or may not be copied.
    pub(crate) fn make(&mut self) -> Result<(), Error> {
        if self.root().is_none() {
            self.made = Some(make(&self.mounted)?);
        }
        Ok(())
    }

    /// The root of the copy that was made, unless the mount is gone.
    pub(crate) fn root(&mut self) -> Option<&OwnedFd> {
        let made = self.made.as_ref()?;
        let changed = [(made.table.as_fd(), PollFlags::PRI)];
        if first_ready(&changed, Some(Duration::ZERO)) != Ok(None) {
            self.drop_unless_listed();
        }
        self.made.as_ref().map(|made| &made.root)
    }

    /// Waits for a packet of `socket`, and drops the copy if none comes soon or the mount goes.
    pub(crate) fn wait_beside(&mut self, socket: impl AsFd) {
        while let Some(made) = &self.made {
            let watched = [
                (socket.as_fd(), PollFlags::IN),
                (made.table.as_fd(), PollFlags::PRI),
            ];
            match first_ready(&watched, Some(KEPT)) {
                Ok(Some(0)) => return,
                // It changed; poll(2) says so once.
                Ok(Some(_)) => self.drop_unless_listed(),
                _ => self.made = None,
            }
        }
    }

    fn drop_unless_listed(&mut self) {
        if !read_table().is_ok_and(|table| self.mounted.id.find(&table).is_some()) {
            self.made = None;
        }
    }
}

fn make(mounted: &Mounted) -> Result<Made, Error> {
    const TABLE: &str = "/proc/self/mountinfo";
    let place = &mounted.mountpoint;
    // First: a change after this moment is seen.
    let table = File::open(TABLE).map_err(Error::std_io(TABLE))?;
    let is_there = mounted.id.find(&read_table()?).is_some();
    if !is_there {
        return Err(Error::mountpoint(place, "is unmounted"));
    }
    let (ours, theirs) = packets::socket_pair()?;
    let device = mounted.id.device.clone();
    let child = ChildProcess::fork(theirs, &[], || send_copy(place, &device));
    let child = child.map_err(Error::std_io("cannot copy the mount"))?;
    let received = packets::receive(&ours);
    let status = child.wait();
    let refused =
        |errno: Errno| Error::io(format!("cannot copy the mount {}", place.display()))(errno);
    match received {
        Ok((_, Some(root))) => Ok(Made { root, table }),
        _ => {
            let number = status.ok().and_then(|status| status.code());
            Err(refused(Errno::from_raw_os_error(number.unwrap_or(0))))
        }
    }
}

/// In a child, whose standard input is the socket. The exit status is the number of an error.
fn send_copy(place: &Path, device: &str) -> i32 {
    let sent = copy_in_own_namespace(place, device).and_then(|copy| {
        let socket = rustix::stdio::stdin();
        let sent = packets::send_with(socket, b"copy", Some(&copy), SendFlags::NOSIGNAL);
        sent.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    });
    sent.map_or_else(Errno::raw_os_error, |()| 0)
}

fn copy_in_own_namespace(place: &Path, device: &str) -> Result<OwnedFd, Errno> {
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
