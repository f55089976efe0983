//! The image of a run, and whether it stayed the same.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Doing;
use crate::{Result, mounts};

/// The image of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Image {
    /// Its path as given.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of all of it.
    pub sha256: String,
    /// The file system it is on, and where that is from: "ext4 on /dev/vda1".
    pub filesystem: Option<String>,
    /// If it was another image when the run was over, both hashes: the run is not valid.
    pub changed: Option<String>,
    #[serde(skip)]
    seen: Option<(PathBuf, Identity)>,
}

/// Device, inode, size, and the nanoseconds of its last changes: those of a file nobody wrote to.
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

impl Image {
    /// Reads all of it once, which warms it in the page cache too.
    pub(super) fn capture(path: &Path) -> Result<Image> {
        let identity = Identity::of(path).doing("looking at", path)?;
        Ok(Image {
            path: path.display().to_string(),
            bytes: identity.0[2],
            sha256: sha256(path).doing("reading", path)?,
            filesystem: mounts::filesystem(path),
            changed: None,
            seen: Some((path.into(), identity)),
        })
    }

    /// Looks at it again, and reads it again if it was written to.
    pub(super) fn ended(self) -> Image {
        Image {
            changed: self.change(),
            ..self
        }
    }

    fn change(&self) -> Option<String> {
        let (path, identity) = self.seen.as_ref()?;
        if Identity::of(path).is_ok_and(|now| now == *identity) {
            return None;
        }
        let now = sha256(path).unwrap_or_else(|reason| reason.to_string());
        let text = format!(
            "the image changed during the run: SHA-256 was {}, is {now}",
            self.sha256
        );
        (now != self.sha256).then_some(text)
    }
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hash)?;
    let digits = hash.finalize();
    Ok(digits.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_another_one_at_the_end_is_named() {
        let scratch = crate::scratch::Scratch::new(&std::env::temp_dir()).unwrap();
        let path = scratch.path().join("image");
        let change = |during: &dyn Fn()| {
            fs::write(&path, "abc").unwrap();
            let image = Image::capture(&path).unwrap();
            assert_eq!((image.bytes, &image.changed), (3, &None));
            during();
            image.ended().changed
        };
        assert_eq!(change(&|| ()), None);
        assert_eq!(change(&|| fs::write(&path, "abc").unwrap()), None);
        let reason = change(&|| fs::write(&path, "abcd").unwrap()).unwrap();
        assert!(
            reason.contains("was ba7816bf8f01cfea") && reason.contains("is 88d4266fd4e6338d"),
            "{reason}"
        );
        let other = scratch.path().join("other");
        fs::write(&other, "abd").unwrap();
        let reason = change(&|| fs::rename(&other, &path).unwrap()).unwrap();
        assert!(reason.contains("is a52d159f262b2c6d"), "{reason}");
        let reason = change(&|| fs::remove_file(&path).unwrap()).unwrap();
        assert!(reason.contains("is No such file"), "{reason}");
    }
}
