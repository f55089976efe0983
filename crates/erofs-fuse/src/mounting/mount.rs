//! Mounting: as root by the kernel's calls for that, otherwise through fusermount3.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::mounted::Mounted;
use super::plan::MountPlan;
use super::{direct, fusermount, umount};
use crate::error::Error;
use crate::request::MountRequest;

/// Mounts, without serving. The descriptor is that of `/dev/fuse`, bound to the mount.
pub(crate) fn mount(request: &MountRequest, max_read: usize) -> Result<(Mounted, OwnedFd), Error> {
    let root = rustix::process::geteuid().is_root();
    let plan = MountPlan::new(request, root, max_read)?;
    if root {
        match direct::mount(&plan) {
            // Root of a user namespace that does not own the mount namespace.
            Err(Error::Io { source, .. })
                if source.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {}
            other => return other,
        }
    }
    let before = umount::mounts_at(&plan.mountpoint);
    let device = fusermount::mount(&plan);
    let device = device.inspect_err(|error| {
        if let Error::FusermountSilent { .. } = error {
            umount::unmount_dead(&plan.mountpoint, &before, &[]);
        }
    })?;
    Ok((Mounted::top(plan.mountpoint, false)?, device))
}
