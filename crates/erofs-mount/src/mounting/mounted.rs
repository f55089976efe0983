//! A mount that was made, and how to unmount it without affecting any other.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::mount::UnmountFlags;

use super::identity::MountId;
use super::located::of_descriptor;
use super::{fusermount, table};
use erofs_fuse::error::Error;

/// A mount that was made. The process that has the descriptor of `/dev/fuse` serves it.
#[derive(Clone, Debug)]
pub(crate) struct Mounted {
    /// Absolute, without symlinks.
    pub(crate) mountpoint: PathBuf,
    pub(crate) id: MountId,
    /// By the kernel's calls, not by fusermount3.
    direct: bool,
}

/// A mount that nobody serves yet.
pub(crate) struct Made {
    pub(crate) mounted: Mounted,
    /// The descriptor of `/dev/fuse` that is bound to it.
    pub(crate) device: OwnedFd,
    /// A copy of the mount that has no path, made before anybody could use the mount. It keeps the
    /// filesystem. `None` as an ordinary user, and before Linux 6.15.
    pub(crate) copy: Option<OwnedFd>,
}

/// The current place of a mount.
enum Place {
    Unmounted,
    /// Another filesystem is mounted on it or below it: unmounting this one would detach that too.
    Covered(PathBuf),
    /// At this path, with nothing mounted on it.
    Top(PathBuf),
}

impl Mounted {
    /// A mount by root that is, or is about to be, at `mountpoint`.
    pub(crate) fn direct(mountpoint: PathBuf, id: MountId) -> Self {
        Self {
            mountpoint,
            id,
            direct: true,
        }
    }

    /// The mount that was just made at `mountpoint` and is the topmost one there. If it cannot be
    /// identified, it is unmounted.
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

    /// Removes the mount from the tree; programs that use it keep what they have open. No error if
    /// it is already unmounted.
    ///
    /// # Errors
    /// One line, and nothing is unmounted, if another filesystem is mounted on it or below it.
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

    /// Marks it as unused, a mark that any use removes; an error if it is in use. As root only.
    pub(crate) fn mark(&self) -> Result<(), Error> {
        if !self.direct {
            return Ok(());
        }
        // Opening it is a use too: it removes any earlier mark, which would unmount it.
        drop(self.topmost()?);
        match self.expire() {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// Unmounts it if it was not used since [`mark`](Self::mark) (as root) or is not in use
    /// (otherwise).
    ///
    /// Works by path, since a descriptor would count as a use. A mount that comes to this path
    /// meanwhile is safe: the kernel's first MNT_EXPIRE only marks a mount.
    pub(crate) fn expire(&self) -> Result<(), Error> {
        match self.place()? {
            Place::Unmounted => Ok(()),
            Place::Covered(by) => Err(Error::covered(&self.mountpoint, &by)),
            Place::Top(path) if self.direct => {
                let flags = UnmountFlags::EXPIRE | UnmountFlags::NOFOLLOW;
                unmount(&path, flags, &path)
            }
            Place::Top(path) => fusermount::unmount(&path, &["-u"]),
        }
    }

    /// Aborts the connection with MNT_FORCE of umount(2), as root. The mount stays, since the
    /// descriptor of this call keeps it busy.
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
        match self.place()? {
            Place::Unmounted => Ok(None),
            Place::Covered(by) => Err(Error::covered(&self.mountpoint, &by)),
            Place::Top(path) => Ok(self.id.open(&path)?.map(|root| (path, root))),
        }
    }

    fn place(&self) -> Result<Place, Error> {
        let table = table::read()?;
        let Some(own) = self.id.find(&table) else {
            return Ok(Place::Unmounted);
        };
        let covered = table.iter().find(|entry| entry.parent == own.id);
        Ok(match covered {
            Some(other) => Place::Covered(other.mountpoint.clone()),
            None => Place::Top(own.mountpoint.clone()),
        })
    }
}

fn unmount(target: &Path, flags: UnmountFlags, path: &Path) -> Result<(), Error> {
    rustix::mount::unmount(target, flags)
        .map_err(|errno| Error::io(format!("umount {}", path.display()))(errno))
}
