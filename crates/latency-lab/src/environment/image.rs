//! The image of a run, and whether it stayed the same.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::engine::Watch;
use crate::error::Doing;
use crate::{Result, mounts};

/// The image of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Image {
    /// The path as given.
    pub path: String,
    /// Size of the image.
    pub bytes: u64,
    /// SHA-256 of the whole file.
    pub sha256: String,
    /// The file system that contains the image, and its device: "ext4 on /dev/vda1".
    pub filesystem: Option<String>,
    /// A line with both hashes, if another image was mounted during the run or found at its end;
    /// the run is then not valid.
    pub changed: Option<String>,
    #[serde(skip)]
    pub(super) watch: Watch,
}

impl Image {
    /// Reads the image once, which also brings it into the page cache.
    pub(super) fn capture(path: &Path) -> Result<Image> {
        let (watch, bytes, sha256) = Watch::begin(path).doing("reading", path)?;
        Ok(Image {
            path: path.display().to_string(),
            bytes,
            sha256,
            filesystem: mounts::filesystem(path),
            changed: None,
            watch,
        })
    }

    /// Whether the run measures no image.
    pub(super) fn is_none(&self) -> bool {
        self.path.is_empty() && self.sha256.is_empty()
    }

    pub(super) fn ended(self) -> Image {
        self.watch.look();
        Image {
            changed: self.watch.other().map(|other| {
                let was = &self.sha256;
                format!("the image changed during the run: SHA-256 {was} at first, then {other}")
            }),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_image_that_was_another_one_in_between_is_named() {
        let scratch = crate::scratch::Scratch::new(&std::env::temp_dir()).unwrap();
        let [path, other, aside] = ["image", "other", "aside"].map(|it| scratch.path().join(it));
        fs::write(&path, "abc").unwrap();
        fs::write(&other, "abd").unwrap();
        let image = Image::capture(&path).unwrap();
        let swap = |from: &Path, to: &Path| fs::rename(from, to).unwrap();
        for mounts in [false, true] {
            swap(&path, &aside);
            swap(&other, &path);
            if mounts {
                image.watch.look();
            }
            swap(&path, &other);
            swap(&aside, &path);
            let changed = image.clone().ended().changed;
            assert_eq!(changed.is_some(), mounts, "seen only if a mount looked");
            assert!(changed.is_none_or(|reason| reason.contains("then a52d159f262b2c6d")));
        }
    }

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
            reason.contains("256 ba7816bf8f01cfea") && reason.contains("then 88d4266fd4e6338d"),
            "{reason}"
        );
        let other = scratch.path().join("other");
        fs::write(&other, "abd").unwrap();
        let reason = change(&|| fs::rename(&other, &path).unwrap()).unwrap();
        assert!(reason.contains("then a52d159f262b2c6d"), "{reason}");
        let reason = change(&|| fs::remove_file(&path).unwrap()).unwrap();
        assert!(reason.contains("then No such file"), "{reason}");
    }
}
