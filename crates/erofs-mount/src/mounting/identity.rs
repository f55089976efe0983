//! The identity of a mount, independent of its path.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, StatxFlags, open};

use super::table::{self, Entry};
use erofs_fuse::error::Error;

/// `STATX_MNT_ID_UNIQUE` of Linux 6.8: an ID that is never reused.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MountId {
    /// ID in the mount table. The kernel reuses it after an unmount.
    id: u64,
    /// ID that is never reused; `None` before Linux 6.8.
    unique: Option<u64>,
    /// `MAJOR:MINOR` of the filesystem; the minor is the number of the FUSE connection.
    pub(crate) device: String,
}

impl MountId {
    /// Identifies the topmost mount at `path`. Queries only the kernel, not the server, which may
    /// not serve yet.
    pub(crate) fn at(path: &Path) -> Result<Self, Error> {
        Self::of(&open_path(path)?)
    }

    /// Identifies the mount with this root, which may not have a path yet.
    pub(crate) fn of(root: &OwnedFd) -> Result<Self, Error> {
        let status = table::status(root, StatxFlags::empty()).map_err(Error::io("statx"))?;
        Ok(Self {
            id: id_of(root)?,
            unique: unique_id_of(root),
            device: format!("{}:{}", status.stx_dev_major, status.stx_dev_minor),
        })
    }

    /// The mount table's line for this mount; `None` if the mount is unmounted.
    pub(crate) fn find<'t>(&self, table: &'t [Entry]) -> Option<&'t Entry> {
        table
            .iter()
            .find(|entry| entry.id == self.id && entry.device == self.device)
    }

    /// Opens the mount's root, if this mount is the topmost one at `path`. While it is open, the
    /// descriptor keeps the mount alive and never refers to another one.
    pub(crate) fn open(&self, path: &Path) -> Result<Option<OwnedFd>, Error> {
        let root = open_path(path)?;
        let same = id_of(&root)? == self.id && unique_id_of(&root) == self.unique;
        Ok(same.then_some(root))
    }
}

fn open_path(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map_err(Error::io(path.display().to_string()))
}

/// The ID, in the mount table, of the mount that contains a file. Read from `/proc/self/fdinfo`,
/// the only way before Linux 5.8.
pub(super) fn id_of(file: &OwnedFd) -> Result<u64, Error> {
    let path = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
    let text = std::fs::read_to_string(&path).map_err(Error::std_io(&path))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    id.and_then(|id| id.trim().parse().ok())
        .ok_or_else(|| Error::std_io(&path)(ErrorKind::InvalidData.into()))
}

fn unique_id_of(root: impl AsFd) -> Option<u64> {
    let status = table::status(root, MNT_ID_UNIQUE).ok()?;
    let known = StatxFlags::from_bits_retain(status.stx_mask).contains(MNT_ID_UNIQUE);
    known.then_some(status.stx_mnt_id)
}
