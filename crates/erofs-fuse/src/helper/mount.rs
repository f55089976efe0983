//! Mounting: by mount(2) as root, otherwise through fusermount3.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::mounted::Mounted;
use super::plan::MountPlan;
use super::{direct, fusermount};
use crate::error::Error;
use crate::request::MountRequest;

/// Mounts, without serving. The descriptor is that of `/dev/fuse`, bound to the mount.
pub(super) fn mount(request: &MountRequest, max_read: usize) -> Result<(Mounted, OwnedFd), Error> {
    let root = rustix::process::geteuid().is_root();
    let plan = MountPlan::new(request, root, max_read)?;
    let (device, direct) = mount_either_way(&plan, root)?;
    Ok((Mounted::new(plan.mountpoint, direct)?, device))
}

/// Returns the descriptor, and whether mount(2) made the mount.
fn mount_either_way(plan: &MountPlan<'_>, root: bool) -> Result<(OwnedFd, bool), Error> {
    if root {
        match direct::mount(plan) {
            // Root of a user namespace that does not own the mount namespace.
            Err(Error::Io { source, .. })
                if source.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {}
            other => return other.map(|device| (device, true)),
        }
    }
    fusermount::mount(plan).map(|device| (device, false))
}
