//! The sandbox of a companion: the companion can open nothing but files of the mount, and cannot
//! write any file.
//!
//! Unlike a server, a companion keeps running as the user who mounted, since only that user may use
//! the mount. Steps that the kernel or a container refuses are left out, which is acceptable
//! because a companion reads no image.

use std::os::fd::OwnedFd;

use confinement::files::{AccessFs, restrict_to};
use confinement::{calls, capabilities};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Restricts this process, which has one thread, to the mount with this root, if there is one.
pub(super) fn enter(root: Option<&OwnedFd>) {
    let _ = capabilities::keep(capabilities::READ_ANY);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if rustix::thread::set_no_new_privs(true).is_ok() {
        if let Ok(root) = root.map(OwnedFd::try_clone).transpose() {
            let access = AccessFs::ReadFile | AccessFs::ReadDir;
            let _ = restrict_to(root.map(|root| (root, access)).into_iter().collect());
        }
        let _ = calls::restrict(calls::Process::Companion);
    }
}
