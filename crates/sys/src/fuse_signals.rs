//! Signals as a descriptor, for the thread that waits for the end of a mount.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

/// The signals that ask a daemon to end: interrupt, terminate, hang up.
const END: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Blocks the signals that ask a daemon to end, in this thread and all that it creates from now on,
/// and returns a descriptor that is readable when one of them came. Not blocking.
pub fn ending_signals() -> io::Result<OwnedFd> {
    block(&set_of(&END))
}

/// The same for the signal that asks for another server: SIGUSR1.
pub fn upgrade_signal() -> io::Result<OwnedFd> {
    block(&set_of(&[libc::SIGUSR1]))
}

/// Undoes what a caller may have set: a process whose caller ignores SIGCHLD could not wait for its
/// children, and one past its limit of file sizes would die of SIGXFSZ. To be called first.
pub fn undo_the_callers() {
    for (signal, action) in [
        (libc::SIGCHLD, libc::SIG_DFL),
        (libc::SIGXFSZ, libc::SIG_IGN),
    ] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, action) };
    }
}

/// Blocks signals, and makes a descriptor of them.
fn block(set: &libc::sigset_t) -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised, and no old mask is requested.
    let outcome = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, std::ptr::null_mut()) };
    if outcome != 0 {
        return Err(io::Error::from_raw_os_error(outcome));
    }
    // SAFETY: `set` is initialised; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `set` is large enough for a signal set; sigemptyset fills it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for &signal in signals {
        // SAFETY: the set was initialised by sigemptyset, and the signals exist.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: initialised by sigemptyset.
    unsafe { set.assume_init() }
}
