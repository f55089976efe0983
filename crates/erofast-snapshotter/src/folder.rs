//! Folders of this program.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Creates a folder that only its owner may enter, and any missing parents, unless it exists.
pub fn make_private(folder: &Path) -> io::Result<()> {
    let mut new = DirBuilder::new();
    match new.mode(0o700).create(folder) {
        // The existing folder is not examined, because a mount there may not answer.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => new.recursive(true).create(folder),
        created => created,
    }
}

/// Turns the error that a file does not exist into `None`.
pub fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// A folder with a folder for each snapshot, named by the snapshot's number.
#[derive(Debug, Clone)]
pub struct Numbered(PathBuf);

impl Numbered {
    /// Creates the folder `name` below the root of the snapshotter, unless it exists.
    pub fn new(root: &Path, name: &str) -> io::Result<Self> {
        let folder = root.join(name);
        make_private(&folder)?;
        Ok(Self(folder))
    }

    /// The folder of a snapshot.
    pub fn of(&self, id: u64) -> PathBuf {
        self.0.join(id.to_string())
    }

    /// The snapshots that have a folder.
    pub fn present(&self) -> io::Result<Vec<u64>> {
        let ids = fs::read_dir(&self.0)?.map(|entry| {
            let name = entry?.file_name();
            Ok(name.to_str().and_then(|name| name.parse().ok()))
        });
        ids.filter_map(io::Result::transpose).collect()
    }
}
