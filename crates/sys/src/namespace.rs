//! A private mount namespace for a process.

use std::io;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives a single-threaded process a mount namespace of its own, with an unused copy of each mount.
/// A process without the right to create a mount namespace also gets a user namespace.
///
/// # Errors
/// As for unshare(2): EPERM if user namespaces are refused, ENOSPC if there are too many, EINVAL in
/// a process with more threads.
pub fn own_mounts() -> Result<(), Errno> {
    let unshare = |flags| {
        // SAFETY: no memory is touched, and descriptors stay shared; only the mounts and rights of
        // this process, which has one thread, change.
        unsafe { unshare_unsafe(flags) }
    };
    match unshare(UnshareFlags::NEWNS) {
        Err(Errno::PERM) => unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUSER)?,
        outcome => outcome?,
    }
    // With shared propagation, a copy in use would keep the original mount busy. The call fails in
    // a chroot whose root is not a mount point.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    let _ = mount_change("/", private);
    Ok(())
}

/// Like [`own_mounts`], but if a user namespace is needed, the calling user is root in it, and its
/// only user.
///
/// # Errors
/// As for [`own_mounts`], or if the user may not be mapped.
pub fn own_mounts_as_root() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    own_mounts()?;
    if geteuid().is_root() {
        return Ok(());
    }
    // The kernel maps a group only for processes that have given up changing their groups.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::{exit_status, fork_in_test};

    #[test]
    fn a_process_gets_copies_of_all_mounts() {
        let table = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let before = table().lines().count();
        let (stdin, _end) = io::pipe().unwrap();
        let pid = fork_in_test(stdin.into(), &[], || match own_mounts() {
            Ok(()) => i32::from(table().lines().count() < before || table().contains(" shared:")),
            Err(_) => 2,
        });
        match exit_status(pid.unwrap()) {
            2 => println!("skipped: namespaces are refused"),
            code => assert_eq!(code, 0),
        }
    }
}
