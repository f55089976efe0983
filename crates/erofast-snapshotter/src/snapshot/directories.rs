//! Directories of snapshots: `snapshots/ID/fs` contains the files, `snapshots/ID/work` is for
//! overlayfs.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::record::Usage;
use crate::folder::{Numbered, if_there};

/// The folder `snapshots` below the root of the snapshotter.
#[derive(Debug, Clone)]
pub struct Directories(Numbered);

impl Directories {
    /// Creates the folder if it is missing.
    pub fn new(root: &Path) -> io::Result<Self> {
        Numbered::new(root, "snapshots").map(Self)
    }

    /// The directory with the files of a snapshot.
    pub fn files(&self, id: u64) -> PathBuf {
        self.0.of(id).join("fs")
    }

    /// The work directory of overlayfs.
    pub fn work(&self, id: u64) -> PathBuf {
        self.0.of(id).join("work")
    }

    /// Creates both directories, unless they exist. The directory of the files has the owner and
    /// the mode of `like`, or belongs to `owner`.
    pub fn make(&self, id: u64, like: Option<&Path>, owner: Option<(u32, u32)>) -> io::Result<()> {
        let files = self.files(id);
        match fs::create_dir_all(self.work(id)).and_then(|()| fs::create_dir(&files)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
            other => other?,
        }
        let below = like.map(fs::metadata).transpose()?;
        let mode = below.as_ref().map_or(0o755, |below| below.mode() & 0o7777);
        let below = below.map(|below| (below.uid(), below.gid()));
        let (user, group) = owner.or(below).unwrap_or((0, 0));
        chown(&files, Some(user), Some(group))?;
        fs::set_permissions(&files, Permissions::from_mode(mode))
    }

    /// Removes the directories of a snapshot, if they exist.
    pub fn remove(&self, id: u64) -> io::Result<()> {
        if_there(fs::remove_dir_all(self.0.of(id))).map(drop)
    }

    /// The snapshots that have a directory.
    pub fn present(&self) -> io::Result<Vec<u64>> {
        self.0.present()
    }
}

/// Bytes and files below a directory. A file with several names counts once; files that disappear
/// in the meantime do not count.
pub fn usage(folder: &Path) -> io::Result<Usage> {
    let (mut usage, mut seen) = (Usage::default(), HashSet::new());
    let mut waiting = vec![folder.to_owned()];
    while let Some(path) = waiting.pop() {
        let Some(metadata) = if_there(fs::symlink_metadata(&path))? else {
            continue;
        };
        if metadata.nlink() > 1 && !metadata.is_dir() && !seen.insert(metadata.ino()) {
            continue;
        }
        usage.inodes += 1;
        usage.size += metadata.blocks() * 512;
        if metadata.is_dir()
            && let Some(entries) = if_there(fs::read_dir(&path))?
        {
            for entry in entries {
                waiting.push(entry?.path());
            }
        }
    }
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_two_names_counts_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), vec![1; 10_000]).unwrap();
        let one = usage(folder.path()).unwrap();
        fs::hard_link(folder.path().join("a"), folder.path().join("b")).unwrap();
        assert_eq!(usage(folder.path()).unwrap(), one);
        assert_eq!(one.inodes, 2);
        assert!(one.size >= 10_000, "{one:?}");
    }

    #[test]
    fn the_root_of_the_files_is_as_that_of_the_layer_below() {
        let folder = tempfile::tempdir().unwrap();
        let directories = Directories::new(folder.path()).unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        fs::set_permissions(&below, Permissions::from_mode(0o1751)).unwrap();
        directories.make(7, Some(&below), None).unwrap();
        let mode = fs::metadata(directories.files(7)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o1751);
        directories.make(8, None, None).unwrap();
        directories.remove(7).unwrap();
        directories.remove(7).unwrap();
        assert_eq!(directories.present().unwrap(), [8]);
    }
}
