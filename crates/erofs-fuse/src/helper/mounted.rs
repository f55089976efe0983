//! A mount that was made, and how to unmount it.

use std::path::PathBuf;

use rustix::mount::UnmountFlags;

use super::{fusermount, table};
use crate::error::Error;

/// A mount that was made. The process with the descriptor of `/dev/fuse` serves it.
#[derive(Debug)]
pub(super) struct Mounted {
    /// Absolute, without symbolic links.
    pub(super) mountpoint: PathBuf,
    /// `MAJOR:MINOR`, which distinguishes it from a later mount at the same path.
    device_number: Option<String>,
    /// Made by mount(2), not by fusermount3.
    direct: bool,
}

impl Mounted {
    pub(super) fn new(mountpoint: PathBuf, direct: bool) -> Self {
        let entry = table::find(&mountpoint).ok().flatten();
        Self {
            device_number: entry.map(|entry| entry.device),
            mountpoint,
            direct,
        }
    }

    /// Whether it is still the mount at its path.
    pub(super) fn is_mounted(&self) -> Result<bool, Error> {
        let now = table::find(&self.mountpoint)?.map(|entry| entry.device);
        Ok(now.is_some() && now == self.device_number)
    }

    /// Removes the mount from the tree; programs that use it keep what they have open.
    pub(super) fn detach(&self) -> Result<(), Error> {
        self.unmount(UnmountFlags::DETACH, &["-u", "-z"])
    }

    /// Unmounts if it was not used since the last call (as root) or is not in use (otherwise).
    pub(super) fn expire(&self) -> Result<(), Error> {
        self.unmount(UnmountFlags::EXPIRE, &["-u"])
    }

    fn unmount(&self, flags: UnmountFlags, arguments: &[&str]) -> Result<(), Error> {
        if !self.direct {
            return fusermount::unmount(&self.mountpoint, arguments);
        }
        let what = || format!("umount {}", self.mountpoint.display());
        rustix::mount::unmount(&self.mountpoint, flags | UnmountFlags::NOFOLLOW)
            .map_err(Error::io(what()))
    }
}
