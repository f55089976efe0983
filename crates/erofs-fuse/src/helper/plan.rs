//! The parameters of one mount(2), however it is made.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::table;
use crate::error::Error;
use crate::options::MountOptions;
use crate::request::MountRequest;

/// The parameters of one mount(2), however it is made.
pub(super) struct MountPlan<'r> {
    /// Absolute, without symbolic links.
    pub(super) mountpoint: PathBuf,
    /// First field of `/proc/mounts`.
    pub(super) source: OsString,
    pub(super) options: &'r MountOptions,
    /// Whether the kernel checks permissions.
    pub(super) default_permissions: bool,
    /// Largest read, in bytes.
    pub(super) max_read: usize,
}

impl<'r> MountPlan<'r> {
    pub(super) fn new(
        request: &'r MountRequest,
        root: bool,
        max_read: usize,
    ) -> Result<Self, Error> {
        let options = &request.options;
        Ok(Self {
            mountpoint: usable_mountpoint(&request.mountpoint)?,
            source: options
                .fsname
                .clone()
                .unwrap_or_else(|| source(&request.image)),
            options,
            default_permissions: options.kernel_checks(root),
            max_read,
        })
    }
}

fn source(image: &Path) -> OsString {
    std::fs::canonicalize(image)
        .unwrap_or_else(|_| image.to_owned())
        .into_os_string()
}

fn usable_mountpoint(path: &Path) -> Result<PathBuf, Error> {
    if table::is_dead(path) {
        let why = "a mount whose daemon died is still there: run erofast umount first";
        return Err(Error::mountpoint(path, why));
    }
    let real = std::fs::canonicalize(path).map_err(|e| Error::no_mountpoint(path, &e))?;
    let status = table::handle(&real).and_then(rustix::fs::fstat);
    if !status.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir()) {
        return Err(Error::mountpoint(path, "is not a directory"));
    }
    Ok(real)
}
