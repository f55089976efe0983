//! The image to mount, and where to mount it.

use std::path::{Path, PathBuf};

use erofs_engine::{VerityOptions, remote};

use crate::options::{MountOptions, ProfileLocation, without_effect};

/// The filesystem type in `/proc/mounts`.
pub const FSTYPE: &str = "fuse.erofast";

/// The image to mount, and where to mount it.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// The image file or block device.
    pub image: PathBuf,
    /// An existing directory, or `/dev/fd/N`: a descriptor of `/dev/fuse` that the caller has
    /// already mounted.
    pub mountpoint: PathBuf,
    /// The `-o` options.
    pub options: MountOptions,
    /// Whether the calling process starts the server itself and waits for the end of the mount,
    /// instead of starting a daemon. That process must have no other threads. A signal that asks it
    /// to end makes it unmount.
    pub foreground: bool,
}

/// Which server of a mount this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// The first server, which mounts.
    First,
    /// A later server, which takes over an existing mount.
    Successor,
}

impl MountRequest {
    /// The descriptor of `/dev/fuse` that was passed instead of a mount point.
    pub fn passed_device(&self) -> Option<i32> {
        let number = self.mountpoint.to_str()?.strip_prefix("/dev/fd/")?;
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        number.parse().ok().filter(|_| digits)
    }

    /// Whether the image is the open file on standard input.
    pub fn is_standard_input(&self) -> bool {
        const NAMES: [&str; 3] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
        NAMES.iter().any(|name| self.image == Path::new(name))
    }

    /// Whether one of the files is at a URL.
    pub fn is_remote(&self) -> bool {
        let mut files = self.files().into_iter();
        files.any(|path| remote::url(&path).is_some())
    }

    /// A notice about options that have no effect on this image.
    pub(crate) fn without_effect(&self) -> Option<String> {
        match self.is_remote() {
            true => None,
            false => without_effect(self.options.for_urls()),
        }
    }

    /// Whether the image is a single file that has a path and whose blocks are not verified.
    fn is_one_file(&self) -> bool {
        let engine = &self.options.engine;
        let alone = engine.devices.is_empty() && engine.lower.is_empty();
        let plain = alone && engine.verity == VerityOptions::default();
        plain && !self.is_remote() && !self.is_standard_input()
    }

    /// Whether the decoded bytes of launches may be kept.
    pub fn keeps_decoded(&self) -> bool {
        let learns = matches!(
            self.options.profile,
            Some(ProfileLocation::Learned | ProfileLocation::Auto)
        );
        let is_ours = self.passed_device().is_none() && self.is_one_file();
        learns && is_ours && self.options.decoded_bytes() > 0
    }

    /// The files of the mount: those that are read while it is served, and those that are read only
    /// when it starts.
    pub fn files(&self) -> Vec<PathBuf> {
        self.options.engine.files(&self.image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_a_number_below_dev_fd() {
        let passed = |mountpoint: &str| {
            let request = MountRequest {
                image: PathBuf::new(),
                mountpoint: mountpoint.into(),
                options: MountOptions::default(),
                foreground: false,
            };
            request.passed_device()
        };
        assert_eq!(passed("/dev/fd/7"), Some(7));
        for path in ["/dev/fd/", "/dev/fd/+7", "/dev/fd/7/x", "/mnt", "dev/fd/7"] {
            assert_eq!(passed(path), None, "{path}");
        }
    }
}
