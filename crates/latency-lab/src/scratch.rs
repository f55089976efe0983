//! A private directory for mount points and load files, removed when dropped.
//!
//! A run that was killed leaves its directory behind; the next run removes it. Each directory is
//! locked by its owner while that lives, which holds across PID namespaces and needs no process
//! table.

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};

use crate::Result;
use crate::error::Doing;

/// Prefix of the directories' names; the pid and a number follow.
const PREFIX: &str = "erofast-lab-";

/// Removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// Holds the lock.
    _directory: File,
}

impl Scratch {
    /// A fresh directory that only we may write to, below `parent`; those of dead runs are removed.
    pub(crate) fn new(parent: &Path) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        remove_orphans(parent);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{}-{count}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&path)
            .doing("making the directory", &path)?;
        let directory = File::open(&path).doing("opening", &path)?;
        // On a filesystem without locks, orphans are not removed either.
        let _ = flock(&directory, FlockOperation::NonBlockingLockExclusive);
        Ok(Scratch {
            path,
            _directory: directory,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Never through a mount that stayed busy: only entries directly in the directory.
fn remove(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let path = entry.path();
        let _ = if path.is_dir() {
            fs::remove_dir(path)
        } else {
            fs::remove_file(path)
        };
    }
    let _ = fs::remove_dir(path);
}

/// Directories of runs that ended without removing them.
fn remove_orphans(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let old = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        // A directory is locked a moment after it is created.
        if ours && old().is_some_and(|age| age.as_secs() >= 10) && is_unlocked(&entry.path()) {
            remove(&entry.path());
        }
    }
}

fn is_unlocked(path: &Path) -> bool {
    File::open(path).is_ok_and(|directory| {
        directory.metadata().is_ok_and(|metadata| metadata.is_dir())
            && flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

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

    #[test]
    fn what_a_killed_run_left_is_removed_by_the_next_and_a_living_ones_stays() {
        let parent = Scratch::new(&std::env::temp_dir()).unwrap();
        let age = |path: &Path| {
            let past = SystemTime::now() - Duration::from_secs(3600);
            File::open(path).unwrap().set_modified(past).unwrap();
        };
        let orphan = parent.path().join(format!("{PREFIX}1-0"));
        fs::create_dir(&orphan).unwrap();
        fs::write(orphan.join("file"), "x").unwrap();
        let living = Scratch::new(parent.path()).unwrap();
        age(&orphan);
        age(living.path());
        let next = Scratch::new(parent.path()).unwrap();
        assert!(!orphan.exists());
        assert!(living.path().exists() && next.path().exists());
    }
}
