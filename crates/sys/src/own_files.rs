//! A descriptor table for one thread.

use std::io;
use std::os::fd::RawFd;

/// Unshares the descriptor table: the calling thread gets a copy without these and the standard
/// streams, since other processes or the kernel wait for their end. Descriptors that other threads
/// open or close from now on are not opened or closed in it.
///
/// For a thread that may wait, unkillable, when the process is killed: the table that the other
/// threads share is then closed without it. The thread must not use descriptors that other threads
/// open later, and what it closes stays open for them.
///
/// # Errors
/// No memory, or forbidden.
pub fn unshare_without(left_out: impl IntoIterator<Item = RawFd>) -> io::Result<()> {
    // SAFETY: no memory is touched. Every descriptor that is open stays open in both tables, with
    // the same number for the same file; a number that one side opens later fails with EBADF, or
    // names a file that the other side opened itself.
    let outcome = unsafe { libc::unshare(libc::CLONE_FILES) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    let streams = [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO];
    for number in streams.into_iter().chain(left_out) {
        // SAFETY: only the copy in this thread's table is closed, in which no number was reused
        // yet; the owners of the others close theirs.
        unsafe { libc::close(number) };
    }
    Ok(())
}
