//! Clones of mounts with mapped owners: mount_setattr(2), which rustix lacks.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use crate::checked;

/// `struct mount_attr` of Linux 5.12, the first version with mapped owners.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const _: () = assert!(size_of::<Attributes>() == 32);

/// Mounts a clone of the mount at `source`, without the mounts below it, at `target`, with the
/// owners of its files mapped by the user namespace. `source` may be a directory of a mount.
pub fn mount_mapped(
    source: &Path,
    target: &Path,
    user_namespace: BorrowedFd<'_>,
) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let clone = open_tree(CWD, source, flags)?;
    map_owners(clone.as_fd(), user_namespace)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    Ok(move_mount(clone, c"", CWD, target, flags)?)
}

fn map_owners(mount: BorrowedFd<'_>, user_namespace: BorrowedFd<'_>) -> io::Result<()> {
    let attributes = Attributes {
        set: libc::MOUNT_ATTR_IDMAP,
        clear: 0,
        propagation: 0,
        user_namespace: user_namespace.as_raw_fd() as u64,
    };
    // SAFETY: the path is a C string and the attributes are a structure of the size that is passed;
    // both outlive the call, which keeps neither.
    checked(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_namespace_that_is_none_is_refused_and_nothing_is_mounted() {
        let target = std::env::temp_dir().join(format!("mapped-{}", std::process::id()));
        std::fs::create_dir(&target).unwrap();
        let none = File::open("/dev/null").unwrap();
        let error = mount_mapped(Path::new("/"), &target, none.as_fd()).unwrap_err();
        std::fs::remove_dir(&target).unwrap();
        assert!(error.raw_os_error().is_some(), "{error}");
    }
}
