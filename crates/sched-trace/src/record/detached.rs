//! Private mounts of the kernel's own filesystems.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// Creates a detached mount, which other processes cannot see and which ends when its descriptor is
/// closed.
pub(super) fn detached(filesystem: &str) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(filesystem, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )
}
