//! mount(2).

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags};

use super::{Mounted, Wish};
use crate::{Error, FSTYPE};

pub(super) fn mount(wish: &Wish<'_>) -> Result<(Mounted, OwnedFd), Error> {
    let device = open_device()?;
    let source = CString::new(wish.source.as_bytes())
        .map_err(|_| Error::mountpoint(&wish.mountpoint, "the image's path holds a zero byte"))?;
    let data = CString::new(data(wish, &device))
        .map_err(|_| Error::mountpoint(&wish.mountpoint, "an option holds a zero byte"))?;
    let what = format!(
        "mount {} on {}",
        wish.source.display(),
        wish.mountpoint.display()
    );
    rustix::mount::mount(
        source.as_c_str(),
        &wish.mountpoint,
        FSTYPE,
        wish.options.flags,
        data.as_c_str(),
    )
    .map_err(Error::io(what))?;
    Ok((Mounted::new(wish.mountpoint.clone(), true), device))
}

fn open_device() -> Result<OwnedFd, Error> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        Error::NoFuse {
            source: errno.into(),
        }
    })
}

/// The kernel's own options: see Documentation/filesystems/fuse.rst.
fn data(wish: &Wish<'_>, device: &OwnedFd) -> String {
    let (uid, gid) = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let mut data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},max_read={}",
        device.as_raw_fd(),
        wish.max_read
    );
    if wish.checks {
        data.push_str(",default_permissions");
    }
    // Root mounts for everyone: permissions decide, as with any mount of root.
    data.push_str(",allow_other");
    data
}
