//! The parameters of one mount, whether root or fusermount3 makes it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use erofs_engine::remote;
use rustix::fs::{FileType, PROC_SUPER_MAGIC, fstat, fstatfs};

use super::table;
use crate::child::ChildProcess;
use erofs_fuse::error::Error;
use erofs_fuse::options::MountOptions;
use erofs_fuse::request::MountRequest;

/// The parameters of one mount, whether root or fusermount3 makes it.
pub(crate) struct MountPlan<'r> {
    /// Absolute, without symlinks.
    pub(crate) mountpoint: PathBuf,
    /// First field of `/proc/mounts`.
    pub(crate) source: OsString,
    pub(crate) options: &'r MountOptions,
    /// Whether the kernel checks permissions.
    pub(crate) default_permissions: bool,
    /// Largest read, in bytes.
    pub(crate) max_read: usize,
}

impl<'r> MountPlan<'r> {
    pub(crate) fn new(
        request: &'r MountRequest,
        root: bool,
        max_read: usize,
    ) -> Result<Self, Error> {
        let options = &request.options;
        let mountpoint = usable_mountpoint(&request.mountpoint)?;
        Ok(Self {
            mountpoint,
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
    if remote::url(image).is_some() {
        return remote::shown(image).into();
    }
    std::fs::canonicalize(image)
        .unwrap_or_else(|_| image.to_owned())
        .into_os_string()
}

fn usable_mountpoint(path: &Path) -> Result<PathBuf, Error> {
    if is_dead(path) {
        let why = "the mount of a dead daemon is still there: run erofast umount first";
        return Err(Error::mountpoint(path, why));
    }
    let real = std::fs::canonicalize(path).map_err(|e| Error::no_mountpoint(path, &e))?;
    let handle = table::handle(&real).map_err(|e| Error::no_mountpoint(path, &e.into()))?;
    if !fstat(&handle).is_ok_and(|it| FileType::from_raw_mode(it.st_mode).is_dir()) {
        return Err(Error::mountpoint(path, "not a directory"));
    }
    if real == Path::new("/") {
        let why = "the root directory cannot be mounted over";
        return Err(Error::mountpoint(path, why));
    }
    // The server and the helper need these filesystems, so a mount over them would be read before
    // it is served.
    let needed = [PROC_SUPER_MAGIC, libc::SYSFS_MAGIC];
    if fstatfs(handle).is_ok_and(|it| needed.contains(&it.f_type)) {
        let why = "in a kernel filesystem that the mount itself needs";
        return Err(Error::mountpoint(path, why));
    }
    Ok(real)
}

/// Whether the daemon of the mount at `path` has died. A child process asks, because a thread that
/// waits for a server that never answers would keep this process from ever forking.
fn is_dead(path: &Path) -> bool {
    if table::has_no_mount(path) {
        return false;
    }
    let ask = || i32::from(table::says_dead(path));
    let status = ChildProcess::ask(table::ANSWER, ask).ok().flatten();
    status.and_then(|status| status.code()) == Some(1)
}
