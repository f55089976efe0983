//! Mounting by mount(2), as root.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags};

use super::plan::MountPlan;
use crate::error::Error;
use crate::request::FSTYPE;

/// Mounts, and returns the descriptor of `/dev/fuse`.
pub(super) fn mount(plan: &MountPlan<'_>) -> Result<OwnedFd, Error> {
    let device = open_device()?;
    let source = CString::new(plan.source.as_bytes())
        .map_err(|_| Error::mountpoint(&plan.mountpoint, "the image's path contains a NUL byte"))?;
    let data = CString::new(data(plan, &device))
        .map_err(|_| Error::mountpoint(&plan.mountpoint, "an option contains a NUL byte"))?;
    let what = format!(
        "mount {} on {}",
        plan.source.display(),
        plan.mountpoint.display()
    );
    rustix::mount::mount(
        source.as_c_str(),
        &plan.mountpoint,
        FSTYPE,
        plan.options.flags,
        data.as_c_str(),
    )
    .map_err(Error::io(what))?;
    Ok(device)
}

fn open_device() -> Result<OwnedFd, Error> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        Error::NoFuse {
            source: errno.into(),
        }
    })
}

/// The kernel's own options: see Documentation/filesystems/fuse.rst.
fn data(plan: &MountPlan<'_>, device: &OwnedFd) -> String {
    let (uid, gid) = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let mut data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},max_read={}",
        device.as_raw_fd(),
        plan.max_read
    );
    if plan.default_permissions {
        data.push_str(",default_permissions");
    }
    // Root mounts for everyone: permissions decide, as with any mount of root.
    data.push_str(",allow_other");
    data
}
