//! A directory of our own for mount points and load files, gone when dropped.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{LabError, Result};

/// Removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A fresh directory that only we may enter, below `parent`.
    pub(crate) fn new(parent: &Path) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("erofast-lab-{}-{count}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&path)
            .map_err(|source| LabError::io("making the directory", &path, source))?;
        Ok(Scratch { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Never through a mount that refused to go: only what lies directly in the directory.
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = if path.is_dir() {
                fs::remove_dir(path)
            } else {
                fs::remove_file(path)
            };
        }
        let _ = fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_what_is_in_it() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        fs::write(scratch.path().join("file"), "x").unwrap();
        fs::create_dir(scratch.path().join("mount")).unwrap();
        let path = scratch.path().to_owned();
        assert!(path.exists());
        drop(scratch);
        assert!(!path.exists());
    }
}
