//! Checks that all mounts of a run mount the same image. A check costs one stat(2); the image is
//! read again only if it may have been written to or replaced.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

/// Device, inode and size, and the times of the last changes in nanoseconds. They all stay the same
/// as long as nobody writes to the file.
#[derive(Debug, Clone, PartialEq)]
struct Identity([u64; 3], [(i64, i64); 2]);

impl Identity {
    fn of(path: &Path) -> io::Result<Identity> {
        let data = fs::metadata(path)?;
        let times = [
            (data.mtime(), data.mtime_nsec()),
            (data.ctime(), data.ctime_nsec()),
        ];
        Ok(Identity([data.dev(), data.ino(), data.len()], times))
    }
}

/// A watch on an image, shared by everything that mounts the image; the default watches nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch(Option<Arc<Mutex<Seen>>>);

#[derive(Debug)]
struct Seen {
    path: PathBuf,
    sha256: String,
    /// None if the last check found no file.
    identity: Option<Identity>,
    /// SHA-256 of the first other file found in place of the image, or the error from reading it.
    other: Option<String>,
}

impl Watch {
    /// Reads the whole image; returns its size and its SHA-256.
    pub(crate) fn begin(path: &Path) -> io::Result<(Watch, u64, String)> {
        let identity = Identity::of(path)?;
        let (bytes, sha256) = (identity.0[2], sha256(path)?);
        let seen = Seen {
            path: path.into(),
            sha256: sha256.clone(),
            identity: Some(identity),
            other: None,
        };
        Ok((Watch(Some(Arc::new(Mutex::new(seen)))), bytes, sha256))
    }

    pub(crate) fn look(&self) {
        if let Some(seen) = &self.0 {
            seen.lock().unwrap_or_else(PoisonError::into_inner).look();
        }
    }

    /// The SHA-256 of the file found in place of the image, or the error from reading it; none if
    /// the image is still the same.
    pub(crate) fn other(&self) -> Option<String> {
        let seen = self.0.as_ref()?.lock();
        seen.unwrap_or_else(PoisonError::into_inner).other.clone()
    }
}

impl Seen {
    fn look(&mut self) {
        let now = Identity::of(&self.path).ok();
        if self.other.is_none() && (now.is_none() || now != self.identity) {
            let found = sha256(&self.path).unwrap_or_else(|reason| reason.to_string());
            self.other = (found != self.sha256).then_some(found);
        }
        self.identity = now;
    }
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hash)?;
    let digits = hash.finalize();
    Ok(digits.iter().map(|byte| format!("{byte:02x}")).collect())
}
