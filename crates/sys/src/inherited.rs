//! Descriptors known only by their number: inherited from the program that started this one, or
//! passed by a caller.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The first number that is not a standard stream.
const FIRST: RawFd = 3;

/// Whether standard output was closed when this process started; set before `main`.
static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether this process was started with standard output closed. In that case the standard library
/// opens /dev/null as standard output before `main`, and output would be lost without an error.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

extern "C" fn look_at_stdout() {
    // SAFETY: F_GETFD takes no pointer, and fails if nothing is open under that number.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    STDOUT_WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

#[used]
// SAFETY: the C library calls each function of this section once, after it has initialised itself
// and before `main`; this function uses nothing of the standard library.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look_at_stdout;

/// A duplicate of descriptor `number`, closed on exec.
///
/// # Errors
/// EBADF if nothing is open under that number.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: borrowed for one call, which fails if nothing is open under that number.
    unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()
}

/// Closes all descriptors except the standard streams and those in `kept`. Call this while no value
/// in this process owns a descriptor, or if no such value will be used again.
pub fn close_all_but(kept: &[RawFd]) {
    let mut kept: Vec<RawFd> = kept.iter().copied().filter(|fd| *fd >= FIRST).collect();
    kept.sort_unstable();
    let mut from = FIRST;
    for fd in kept {
        if fd > from {
            close_range(from, fd - 1);
        }
        from = from.max(fd + 1);
    }
    close_range(from, RawFd::MAX);
}

/// Closes an inherited descriptor that no value owns.
pub fn close(number: RawFd) {
    // SAFETY: no memory is touched; a number that is not open is an error, which is ignored.
    unsafe { libc::close(number) };
}

fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: no memory is touched; by the caller's promise no value owns one of the descriptors.
    let outcome = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if outcome != 0 {
        close_one_by_one(first, last);
    }
}

/// Closes descriptors without close_range(2), for kernels before 5.9 and filters that do not know
/// that call.
fn close_one_by_one(first: RawFd, last: RawFd) {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    // Collect all numbers first: one of them belongs to the directory itself, which is closed by
    // then.
    let numbers = open
        .flatten()
        .filter_map(|fd| fd.file_name().to_str()?.parse().ok());
    let numbers: Vec<RawFd> = numbers.collect();
    let wanted = numbers.into_iter().filter(|fd| (first..=last).contains(fd));
    wanted.for_each(close);
}

/// Whether this process may call unshare(2), and so [`unshare_without`]. The seccomp filters of
/// container engines refuse the call, whatever its flags.
///
/// # Errors
/// The error of the call if it is refused.
pub fn may_unshare() -> io::Result<()> {
    // SAFETY: without flags, the call changes nothing.
    Ok(unsafe { unshare_unsafe(UnshareFlags::empty()) }?)
}

/// Unshares the descriptor table: the calling thread gets a copy without the descriptors `left_out`
/// and the standard streams, because other processes or the kernel wait for all of these to be
/// closed. Descriptors that other threads open or close from now on are not opened or closed in the
/// copy.
///
/// This is for a thread that may be in an unkillable wait when the process is killed: since this
/// thread has its own table, the kernel can close the one that the other threads share without
/// waiting for this thread. The thread must not use descriptors that other threads open later, and
/// descriptors that it closes stay open for the other threads.
///
/// # Errors
/// There is not enough memory, or the call is forbidden.
pub fn unshare_without(left_out: impl IntoIterator<Item = RawFd>) -> io::Result<()> {
    // SAFETY: no memory is touched. Every descriptor that is open stays open in both tables, with
    // the same number for the same file; a number that one side opens later fails with EBADF on the
    // other side, or names a file that the other side opened itself.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }?;
    // Closes the descriptors in this thread's table only, in which no number has been reused yet;
    // their owners close them in the other table.
    (0..FIRST).chain(left_out).for_each(close);
    Ok(())
}

#[cfg(test)]
pub(crate) fn is_open(number: RawFd) -> bool {
    std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_duplicate_has_a_number_of_its_own() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let copy = duplicate(file.as_raw_fd()).unwrap();
        assert_ne!(copy.as_raw_fd(), file.as_raw_fd());
    }

    #[test]
    fn a_number_that_is_not_open_is_an_error() {
        for number in [-1, 1 << 30] {
            let error = duplicate(number).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()));
        }
    }

    /// Runs `close` in a forked process with `count` additional descriptors; returns which of them
    /// are open afterwards.
    fn left_after(count: usize, close: impl FnOnce(&[RawFd])) -> Vec<bool> {
        let files: Vec<_> = (0..count)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let stdin = std::fs::File::open("/dev/null").unwrap();
        let pid = crate::fork::fork_in_test(stdin.into(), &[], || {
            for &number in &numbers {
                // SAFETY: the number is free, and no value in this child process owns it.
                unsafe { libc::dup2(0, number) };
            }
            close(&numbers);
            let bits = numbers.iter().enumerate();
            bits.fold(0, |bits, (at, fd)| bits | i32::from(is_open(*fd)) << at)
        });
        let bits = crate::fork::exit_status(pid.unwrap());
        (0..count).map(|at| bits >> at & 1 != 0).collect()
    }

    #[test]
    fn all_but_some_are_closed_in_both_ways() {
        let kept = |numbers: &[RawFd]| [numbers[3], numbers[1], 1, numbers[3]];
        let wanted = [false, true, false, true, false];
        assert_eq!(left_after(5, |fds| close_all_but(&kept(fds))), wanted);
        let one_by_one = |fds: &[RawFd]| {
            close_one_by_one(fds[0], fds[0]);
            close_one_by_one(fds[2], fds[2]);
            close_one_by_one(fds[4], RawFd::MAX);
        };
        assert_eq!(left_after(5, one_by_one), wanted);
    }
}
