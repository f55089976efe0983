//! The images of a tree: the named one, and those below it.

use std::path::{Path, PathBuf};

use super::{EngineOptions, LowerImage, Offset, VerityOptions};
use crate::layers::number::MOST_IMAGES;
use crate::remote;
use crate::{Error, Result};

/// One image of a tree, with its own options.
#[derive(Clone, Debug)]
pub(crate) struct OneImage {
    pub path: PathBuf,
    pub options: EngineOptions,
}

impl EngineOptions {
    /// Adds an extra device to the image that was named last.
    pub(super) fn add_device(&mut self, device: PathBuf) {
        let of_lower = self.lower.last_mut().map(|lower| &mut lower.devices);
        of_lower.unwrap_or(&mut self.devices).push(device);
    }

    /// The images of the tree, the top one first.
    pub(crate) fn images(&self, top: &Path) -> Vec<OneImage> {
        let lower = self.lower.iter().map(|lower| self.lower_image(lower));
        let top = OneImage {
            path: top.to_owned(),
            options: self.clone(),
        };
        std::iter::once(top).chain(lower).collect()
    }

    /// A lower image, without the options that apply to a single file.
    pub(crate) fn lower_image(&self, lower: &LowerImage) -> OneImage {
        let options = Self {
            devices: lower.devices.clone(),
            lower: Vec::new(),
            offset: Offset::default(),
            verity: self.verity_of_each(),
            ..self.clone()
        };
        let path = lower.image.clone();
        OneImage { path, options }
    }

    /// The options of verification that apply to every image of a tree.
    fn verity_of_each(&self) -> VerityOptions {
        VerityOptions {
            auto: self.verity.auto,
            certificates: self.verity.certificates.clone(),
            ..VerityOptions::default()
        }
    }

    /// Checks that these options fit a tree of this many images.
    ///
    /// # Errors
    /// There are too many images, or only one of them would be verified.
    pub(crate) fn check_images(&self, top: &Path, count: usize) -> Result<()> {
        if count > MOST_IMAGES {
            let what = format!("a tree of {count} images; at most {MOST_IMAGES} are supported");
            return Err(Error::layers(remote::shown(top), what));
        }
        if count > 1 && self.verity != self.verity_of_each() {
            let what = "these options verify one image, but the tree has several: verity=auto \
                        verifies each with the files beside it";
            return Err(Error::verity(remote::shown(top), what.to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn options(given: &[(&str, &str)]) -> EngineOptions {
        let mut options = EngineOptions::default();
        for (name, value) in given {
            assert_eq!(options.set(name, Some(OsStr::new(value))), Ok(true));
        }
        options
    }

    #[test]
    fn a_device_belongs_to_the_image_that_was_named_last() {
        let given = [
            ("device", "a"),
            ("lower", "b"),
            ("lower", "c"),
            ("device", "d"),
            ("device", "e"),
        ];
        let images = options(&given).images(Path::new("top"));
        let images = images.iter().map(|one| {
            let devices = one.options.devices.iter();
            let devices = devices.map(|device| device.display().to_string());
            (
                one.path.display().to_string(),
                devices.collect::<Vec<_>>().join(" "),
            )
        });
        let expected = [("top", "a"), ("b", ""), ("c", "d e")];
        assert!(images.eq(expected.map(|(image, devices)| (image.to_owned(), devices.to_owned()))));
    }

    #[test]
    fn what_verifies_one_image_is_refused_for_several() {
        let check = |given: &[(&str, &str)]| {
            let options = options(given);
            options.check_images(Path::new("top"), options.lower.len() + 1)
        };
        assert!(check(&[("verity", "auto"), ("lower", "b")]).is_ok());
        assert!(check(&[("verity.hashdevice", "h")]).is_ok());
        let error = check(&[("verity.hashdevice", "h"), ("lower", "b")]).unwrap_err();
        assert!(error.to_string().starts_with("top: verity: "), "{error}");
        assert!(check(&[("lower", "b"); MOST_IMAGES - 1]).is_ok());
        let error = check(&[("lower", "b"); MOST_IMAGES]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "top: a tree of 129 images; at most 128 are supported"
        );
    }
}
