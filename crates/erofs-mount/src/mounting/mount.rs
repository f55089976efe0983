//! Mounting: as root through system calls, otherwise through fusermount3.

use rustix::io::Errno;

use super::expected::ExpectedMount;
use super::mounted::{Made, Mounted};
use super::plan::MountPlan;
use super::{direct, fusermount};
use erofs_fuse::error::Error;
use erofs_fuse::request::MountRequest;

/// Makes the mount, but does not serve it. `expect` is called just before each mount is attached to
/// the tree; if `expect` fails, nothing is mounted.
pub(crate) fn mount(
    request: &MountRequest,
    max_read: usize,
    mut expect: impl FnMut(ExpectedMount) -> Result<(), Error>,
) -> Result<Made, Error> {
    let root = rustix::process::geteuid().is_root();
    let plan = MountPlan::new(request, root, max_read)?;
    if root {
        match direct::mount(&plan, &mut expect) {
            // This process is root in a user namespace that does not own the mount namespace.
            Err(Error::Io { source, .. })
                if source.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {}
            other => return other,
        }
    }
    let expected = ExpectedMount::next(plan.mountpoint.clone(), false);
    expect(expected.clone())?;
    let device = fusermount::mount(&plan);
    let device = device.inspect_err(|error| {
        if let Error::FusermountSilent { .. } = error {
            expected.unmount_dead();
        }
    })?;
    Ok(Made {
        mounted: Mounted::top(plan.mountpoint, false)?,
        device,
        copy: None,
    })
}
