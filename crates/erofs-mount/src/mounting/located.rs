//! Holds a mount through a descriptor of its parent directory, so that exactly the mount found in
//! the table is unmounted: users who own directories on the mount's path can redirect the path at
//! any time.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::identity::id_of;
use super::table::Entry;
use erofs_fuse::error::Error;

/// A mount that is the topmost one at its place.
pub(crate) struct Located {
    id: u64,
    /// Descriptor of its parent directory, in which the mount point cannot be renamed while
    /// something is mounted on it.
    around: OwnedFd,
    name: PathBuf,
}

impl Located {
    /// Finds the mount; `None` if its path leads to another mount, or nowhere.
    ///
    /// # Errors
    /// Returns an error if the parent directory cannot be opened.
    pub(crate) fn find(entry: &Entry) -> Result<Option<Self>, Error> {
        let path = &entry.mountpoint;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::mountpoint(path, "has no parent directory"));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let around = match open(parent, flags, Mode::empty()) {
            Ok(around) => around,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(Error::io(parent.display().to_string())(errno)),
        };
        let located = Self {
            id: entry.id,
            around,
            name: name.into(),
        };
        Ok(located.root()?.is_some().then_some(located))
    }

    /// Unmounts the mount, unless it is busy.
    pub(crate) fn unmount(&self) -> Result<(), Errno> {
        // A descriptor of the mount's root would keep it busy.
        let mut path = of_descriptor(&self.around).into_os_string();
        path.push(OsStr::from_bytes(b"/"));
        path.push(&self.name);
        rustix::mount::unmount(&*path, UnmountFlags::NOFOLLOW)
    }

    /// Detaches the mount from the tree, even if it is busy.
    pub(crate) fn detach(&self) -> Result<(), Errno> {
        let root = self.root().map_err(|_| Errno::NOENT)?;
        let root = root.ok_or(Errno::NOENT)?;
        rustix::mount::unmount(of_descriptor(&root), UnmountFlags::DETACH)
    }

    /// Opens the mount's root; `None` if another mount is at its place by now.
    fn root(&self) -> Result<Option<OwnedFd>, Error> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.around, &self.name, flags, Mode::empty()) {
            Ok(root) => Ok((id_of(&root)? == self.id).then_some(root)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io(self.name.display().to_string())(errno)),
        }
    }
}

/// The kernel's link to the file of a descriptor, whatever is mounted over it.
pub(crate) fn of_descriptor(file: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Creates `own/mnt`, `other/mnt` and a mount on each; prints a line and returns `None` if this
    /// process may not mount.
    fn two_mounts() -> Option<tempfile::TempDir> {
        let place = tempfile::tempdir().unwrap();
        for name in ["own", "other"] {
            let point = place.path().join(name).join("mnt");
            fs::create_dir_all(&point).unwrap();
            let flags = rustix::mount::MountFlags::empty();
            if let Err(errno) = rustix::mount::mount("none", &point, "tmpfs", flags, None) {
                println!("skipped: mounting needs root: {errno}");
                return None;
            }
        }
        Some(place)
    }

    fn is_mounted(path: &Path) -> bool {
        let real = path.canonicalize().unwrap();
        table::read()
            .unwrap()
            .iter()
            .any(|it| it.mountpoint == real)
    }

    /// Replaces a path, as a user may do between the check of the table and the unmounting.
    fn swap(place: &Path) {
        fs::rename(place.join("own"), place.join("moved")).unwrap();
        symlink("other", place.join("own")).unwrap();
    }

    #[test]
    fn a_path_that_leads_to_another_mount_by_now_is_none() {
        let Some(place) = two_mounts() else { return };
        let path = place.path().canonicalize().unwrap();
        let entry = table::top(&path.join("own/mnt")).unwrap().unwrap();
        swap(&path);
        assert!(Located::find(&entry).unwrap().is_none());
        fs::remove_file(path.join("own")).unwrap();
        assert!(Located::find(&entry).unwrap().is_none());
        for name in ["moved", "other"] {
            let point = path.join(name).join("mnt");
            let entry = table::top(&point).unwrap().unwrap();
            Located::find(&entry).unwrap().unwrap().unmount().unwrap();
            assert!(!is_mounted(&point));
        }
    }

    #[test]
    fn the_mount_that_was_found_is_unmounted_wherever_its_path_leads() {
        for detaches in [false, true] {
            let Some(place) = two_mounts() else { return };
            let path = place.path().canonicalize().unwrap();
            let entry = table::top(&path.join("own/mnt")).unwrap().unwrap();
            let located = Located::find(&entry).unwrap().unwrap();
            swap(&path);
            match detaches {
                true => located.detach().unwrap(),
                false => located.unmount().unwrap(),
            }
            let other = path.join("other/mnt");
            assert!(is_mounted(&other) && !is_mounted(&path.join("moved/mnt")));
            rustix::mount::unmount(&other, UnmountFlags::DETACH).unwrap();
        }
    }
}
