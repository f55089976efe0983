//! A mount that the caller made, named by `/dev/fd/N` instead of a mount point, as in libfuse.
//!
//! The caller has opened `/dev/fuse` as descriptor N, has called mount(2) with `fd=N`, and starts
//! the program with N open. So the program needs no right to mount. Nothing is mounted or unmounted
//! here.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, fstat, major, minor};

use erofs_fuse::error::Error;
use erofs_fuse::options::ProfileLocation;
use erofs_fuse::request::MountRequest;

/// Device number of `/dev/fuse`, from Documentation/admin-guide/devices.txt.
const FUSE_DEVICE: (u32, u32) = (10, 229);

/// Rejects options that require the mount to be made here.
pub(crate) fn check(request: &MountRequest) -> Result<(), Error> {
    let profile = request.options.profile.as_ref();
    let refuse = |why| Err(Error::mountpoint(&request.mountpoint, why));
    match request.passed_device() {
        Some(_) if request.options.timeout.is_some() => {
            refuse("timeout= cannot unmount what the caller has mounted")
        }
        Some(_) if profile.is_some_and(|profile| *profile != ProfileLocation::Learned) => {
            refuse("profile= needs the path of the mount point")
        }
        _ => Ok(()),
    }
}

/// A duplicate of the descriptor, if it refers to `/dev/fuse`.
pub(crate) fn device(path: &Path, number: i32) -> Result<OwnedFd, Error> {
    let what = || path.display().to_string();
    let device = sys::inherited::duplicate(number).map_err(Error::std_io(what()))?;
    let stat = fstat(&device).map_err(Error::io(what()))?;
    let is_fuse = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (major(stat.st_rdev), minor(stat.st_rdev)) == FUSE_DEVICE;
    match is_fuse {
        true => Ok(device),
        false => Err(Error::mountpoint(path, "not a descriptor of /dev/fuse")),
    }
}
