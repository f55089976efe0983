//! Queries of a mounted FUSE filesystem, by an ioctl of one of its directories.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of one call, in and out: below the limit of the size field in a command number.
pub const QUERY_BYTES: usize = 16_000;

/// `_IOWR('E', number, char[16000])`.
pub const fn query_command(number: u8) -> u32 {
    (3 << 30) | ((QUERY_BYTES as u32) << 16) | ((b'E' as u32) << 8) | number as u32
}

/// Sends `bytes` to the filesystem of `directory`, which changes them.
///
/// # Errors
/// ENOTTY when it does not know the command.
pub fn query(
    directory: BorrowedFd<'_>,
    number: u8,
    bytes: &mut [u8; QUERY_BYTES],
) -> io::Result<()> {
    let command = query_command(number);
    // SAFETY: by the size in the command, the kernel reads and writes at most QUERY_BYTES bytes at
    // `bytes`, which is exactly as long and outlives the call; the descriptor is open while
    // borrowed.
    let outcome = unsafe { libc::ioctl(directory.as_raw_fd(), command as _, bytes.as_mut_ptr()) };
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
