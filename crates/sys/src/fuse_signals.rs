//! The signals that end a program, and signals as a descriptor, for the thread that waits for the
//! end of a mount.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

use crate::checked;

/// The signals that ask a daemon to end: interrupt, terminate, hang up.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The signals that ask a program to end, for programs that catch them to clean up first. SIGHUP is
/// left out if it was already ignored when the program started, as under nohup(1).
pub fn ending_signals_to_catch() -> impl Iterator<Item = libc::c_int> {
    let counts = |signal: &libc::c_int| *signal != libc::SIGHUP || !is_ignored(*signal);
    ENDING.into_iter().filter(counts)
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: a signal action is plain numbers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the call changes no action, and the place for the answer is valid.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Blocks the signals that ask a daemon to end (interrupt, terminate, hang up), in this thread and
/// all threads that it creates from now on. Returns a non-blocking descriptor that is readable once
/// one of these signals has arrived.
pub fn ending_signals() -> io::Result<OwnedFd> {
    block(&ENDING)
}

/// Makes the signals that ask a daemon to end take effect while they are not blocked, even if the
/// parent process ignores them, as the shell of a background job and nohup(1) do.
pub fn obey_ending_signals() {
    for signal in ENDING {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Like [`ending_signals`], for the signal that requests another server: SIGUSR1.
pub fn upgrade_signal() -> io::Result<OwnedFd> {
    block(&[libc::SIGUSR1])
}

/// Like [`ending_signals`], for children that end, stop or continue.
pub fn child_signal() -> io::Result<OwnedFd> {
    block(&[libc::SIGCHLD])
}

/// Resets signals: a process that inherits an ignored SIGCHLD could not wait for its children, and
/// SIGXFSZ would kill a process that exceeds its file size limit. Call this first.
pub fn undo_the_callers() {
    for (signal, action) in [
        (libc::SIGCHLD, libc::SIG_DFL),
        (libc::SIGXFSZ, libc::SIG_IGN),
    ] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, action) };
    }
}

/// Ends this process by the signal that its descriptor from [`ending_signals`] delivers, as if the
/// signal had not been blocked. Returns if no signal is pending.
pub fn end_by(signals: impl AsFd) {
    // Size of struct signalfd_siginfo, which begins with the number.
    let mut came = [0; 128];
    if rustix::io::read(signals, &mut came).is_err() {
        return;
    }
    let number = libc::c_int::from_ne_bytes([came[0], came[1], came[2], came[3]]);
    let set = set_of(&[number]);
    // SAFETY: no handler is installed.
    unsafe { libc::signal(number, libc::SIG_DFL) };
    // SAFETY: the signal is still blocked in this thread, so nothing happens yet.
    unsafe { libc::raise(number) };
    // SAFETY: the set is only read, and no old mask is requested.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: a set is plain numbers, one bit for each signal.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for &signal in signals {
        // SAFETY: the set is initialised; a number that is no signal is an error, not a hazard.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

/// Blocks signals, and creates a descriptor for them.
fn block(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    let set = set_of(signals);
    let set = &raw const set;
    // SAFETY: the set is only read, and no old mask is requested.
    let outcome = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, std::ptr::null_mut()) };
    if outcome != 0 {
        return Err(io::Error::from_raw_os_error(outcome));
    }
    // SAFETY: the set is only read; -1 asks for a new descriptor.
    let fd = checked(unsafe { libc::signalfd(-1, set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
    // SAFETY: the descriptor is new and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_told_from_others() {
        // Rust programs ignore SIGPIPE; nothing handles the other signal.
        assert!(is_ignored(libc::SIGPIPE) && !is_ignored(libc::SIGWINCH));
        let caught: Vec<_> = ending_signals_to_catch().collect();
        assert!(caught.starts_with(&[libc::SIGINT, libc::SIGTERM]));
        assert_eq!(caught.contains(&libc::SIGHUP), !is_ignored(libc::SIGHUP));
    }
}
