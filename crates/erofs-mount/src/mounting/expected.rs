//! A mount that is about to be made, so that cleaning up can be prepared beforehand.

use std::path::PathBuf;

use super::mounted::Mounted;
use super::place::mounts_at;
use super::table::Entry;
use super::umount::unmount_dead;

/// A mount that is about to be made, or has been made.
#[derive(Clone, Debug)]
pub(crate) enum ExpectedMount {
    /// A mount that has been identified.
    Known(Mounted),
    /// The next mount at `mountpoint`.
    Next {
        /// Absolute, without symlinks.
        mountpoint: PathBuf,
        /// The mounts that were already at the path.
        before: Vec<Entry>,
        /// Whether this process makes the mount through system calls, rather than through
        /// fusermount3.
        direct: bool,
    },
}

impl ExpectedMount {
    pub(super) fn next(mountpoint: PathBuf, direct: bool) -> Self {
        let before = mounts_at(&mountpoint);
        Self::Next {
            mountpoint,
            before,
            direct,
        }
    }

    /// Notes that the mount was made.
    pub(crate) fn made(&mut self) {
        if let Self::Next {
            mountpoint,
            before,
            direct,
        } = self
            && mounts_at(mountpoint).iter().any(|it| !before.contains(it))
            && let Ok(mounted) = Mounted::top(mountpoint.clone(), *direct)
        {
            *self = Self::Known(mounted);
        }
    }

    /// Unmounts the mounts that were added at the path since `before`, if no process serves them.
    pub(crate) fn unmount_dead(&self) {
        if let Self::Next {
            mountpoint, before, ..
        } = self
        {
            unmount_dead(mountpoint, before, &[]);
        }
    }
}
