//! ioctls of FUSE: on `/dev/fuse`, and on a mounted directory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::checked;

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const CLONE: u32 = (2 << 30) | (4 << 16) | (229 << 8);

/// Binds `fresh`, a newly opened descriptor of `/dev/fuse`, to the mount of `session`.
pub fn clone_into(session: BorrowedFd<'_>, fresh: BorrowedFd<'_>) -> io::Result<()> {
    let mut number = session.as_raw_fd().to_ne_bytes();
    // SAFETY: according to the size in the command, the kernel reads four bytes.
    unsafe { ioctl(fresh, CLONE, &mut number) }
}

/// Number of bytes of a query, and of its answer: below the limit of the size field in a command
/// number.
pub const QUERY_BYTES: usize = 16_000;

/// `_IOWR('E', number, char[16000])`.
pub const fn query_command(number: u8) -> u32 {
    (3 << 30) | ((QUERY_BYTES as u32) << 16) | ((b'E' as u32) << 8) | number as u32
}

/// Sends `bytes` to the filesystem of `directory`, which modifies them.
///
/// # Errors
/// ENOTTY if the filesystem does not know the command.
pub fn query(
    directory: BorrowedFd<'_>,
    number: u8,
    bytes: &mut [u8; QUERY_BYTES],
) -> io::Result<()> {
    // SAFETY: according to the size in the command, the kernel reads and writes at most QUERY_BYTES
    // bytes.
    unsafe { ioctl(directory, query_command(number), bytes) }
}

/// # Safety
/// The command must read and write no more than `bytes`.
unsafe fn ioctl(file: BorrowedFd<'_>, command: u32, bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the bytes outlive the call, and are enough, as the caller promises.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), command as _, bytes.as_mut_ptr()) }).map(drop)
}
