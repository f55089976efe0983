//! `/dev/fuse` beyond read and write.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const CLONE: libc::c_ulong = (2 << 30) | (4 << 16) | (229 << 8);

/// Ties `fresh`, a descriptor of `/dev/fuse` that was just opened, to the mount of `session`.
pub fn clone_into(session: BorrowedFd<'_>, fresh: BorrowedFd<'_>) -> io::Result<()> {
    let number = session.as_raw_fd() as u32;
    // SAFETY: the kernel reads four bytes from `number`, which outlives the call; both descriptors
    // are open for as long as they are borrowed.
    let outcome = unsafe { libc::ioctl(fresh.as_raw_fd(), CLONE as _, &raw const number) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
