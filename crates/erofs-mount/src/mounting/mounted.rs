//! An existing mount, and how to unmount it without affecting any other.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;

use super::identity::MountId;
use super::located::of_descriptor;
use super::{fusermount, table};
use erofs_fuse::error::Error;

/// A mount that this program made. The process that has the descriptor of `/dev/fuse` serves it.
#[derive(Clone, Debug)]
pub(crate) struct Mounted {
    /// Absolute, without symlinks.
    pub(crate) mountpoint: PathBuf,
    pub(crate) id: MountId,
    /// Whether the mount was made through system calls, rather than through fusermount3.
    direct: bool,
}

/// A new mount that is not served yet.
pub(crate) struct Made {
    pub(crate) mounted: Mounted,
    /// The descriptor of `/dev/fuse` that is bound to the mount.
    pub(crate) device: OwnedFd,
    /// A copy of the mount that has no path, made before any program could use the mount. The copy
    /// keeps the filesystem alive. `None` for an ordinary user, and before Linux 6.15.
    pub(crate) copy: Option<OwnedFd>,
}

impl Mounted {
    /// A mount made by root that is, or is about to be, at `mountpoint`.
    pub(crate) fn direct(mountpoint: PathBuf, id: MountId) -> Self {
        Self {
            mountpoint,
            id,
            direct: true,
        }
    }

    /// Identifies the mount that was just made at `mountpoint` and is the topmost one there. If
    /// that fails, the mount is unmounted.
    pub(crate) fn top(mountpoint: PathBuf, direct: bool) -> Result<Self, Error> {
        let id = MountId::at(&mountpoint).inspect_err(|_| {
            let _ = match direct {
                true => unmount(&mountpoint, UnmountFlags::DETACH, &mountpoint),
                false => fusermount::unmount(&mountpoint, &["-u", "-z"]),
            };
        })?;
        Ok(Self {
            mountpoint,
            id,
            direct,
        })
    }

    /// Removes the mount from the tree; files that programs have open stay usable. Succeeds if the
    /// mount is already gone.
    ///
    /// # Errors
    /// Returns an error, and unmounts nothing, if another filesystem is mounted on or below this
    /// mount.
    pub(crate) fn detach(&self) -> Result<(), Error> {
        let Some((path, root)) = self.topmost()? else {
            return Ok(());
        };
        if !self.direct {
            drop(root);
            return fusermount::unmount(&path, &["-u", "-z"]);
        }
        unmount(&of_descriptor(&root), UnmountFlags::DETACH, &path)
    }

    /// Marks the mount as unused; any use removes the mark. Fails if the mount is in use, and does
    /// nothing without root.
    pub(crate) fn mark(&self) -> Result<(), Error> {
        if !self.direct {
            return Ok(());
        }
        // Opening the mount counts as use, so it removes any earlier mark. With such a mark, the
        // call below would unmount the mount.
        drop(self.topmost()?);
        match self.expire() {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// Unmounts the mount: for root, if it has not been used since [`mark`](Self::mark); for other
    /// users, if it is not in use.
    ///
    /// The mount is named by its path, since an open descriptor of it would count as use. Another
    /// mount that appears at this path in the meantime is safe, because the first MNT_EXPIRE on a
    /// mount only marks it.
    pub(crate) fn expire(&self) -> Result<(), Error> {
        let Some(path) = self.place()? else {
            return Ok(());
        };
        if !self.direct {
            return fusermount::unmount(&path, &["-u"]);
        }
        unmount(&path, UnmountFlags::EXPIRE | UnmountFlags::NOFOLLOW, &path)
    }

    /// Aborts the connection by calling umount(2) with MNT_FORCE, which only root may use. The
    /// mount stays, since the descriptor that this call uses keeps it busy.
    pub(crate) fn force_abort(&self) -> Result<(), Error> {
        let table = table::read()?;
        let entry = self.id.find(&table);
        let root = entry.map(|entry| self.id.open(&entry.mountpoint));
        if let Some(root) = root.transpose()?.flatten() {
            let _ = rustix::mount::unmount(of_descriptor(&root), UnmountFlags::FORCE);
        }
        Ok(())
    }

    fn topmost(&self) -> Result<Option<(PathBuf, OwnedFd)>, Error> {
        let Some(path) = self.place()? else {
            return Ok(None);
        };
        Ok(self.id.open(&path)?.map(|root| (path, root)))
    }

    /// The current path of the mount; `None` if the mount is unmounted.
    ///
    /// # Errors
    /// Returns an error if another filesystem is mounted on or below this mount: unmounting this
    /// one would detach the other too.
    fn place(&self) -> Result<Option<PathBuf>, Error> {
        let table = table::read()?;
        let Some(own) = self.id.find(&table) else {
            return Ok(None);
        };
        match table.iter().find(|entry| entry.parent == own.id) {
            Some(other) => Err(Error::covered(&self.mountpoint, &other.mountpoint)),
            None => Ok(Some(own.mountpoint.clone())),
        }
    }
}

fn unmount(target: &Path, flags: UnmountFlags, path: &Path) -> Result<(), Error> {
    rustix::mount::unmount(target, flags)
        .map_err(|errno| Error::io(format!("umount {}", path.display()))(errno))
}
