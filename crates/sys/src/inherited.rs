//! Descriptors that are known by their number: inherited from the program that started this one, or
//! passed by a caller.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// A duplicate of descriptor `number`, closed on exec.
///
/// # Errors
/// EBADF if nothing is open under that number.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched; a number that is not open is an error.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made it, and nothing else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[cfg(test)]
mod tests {
    use super::duplicate;
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
            assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        }
    }
}
