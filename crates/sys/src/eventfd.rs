//! A wake-up as a file descriptor: eventfd(2).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Readable from [`wake`](Self::wake) until [`clear`](Self::clear), so a wake-up that finds no
/// sleeper ends the next sleep.
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// Creates a descriptor that is not readable yet, non-blocking and closed on exec.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(descriptor.into()))
    }

    /// Makes the descriptor readable. Any thread may call this.
    pub fn wake(&self) {
        // The write can fail only if the counter is full, in which case the descriptor is readable
        // anyway.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Clears all earlier wake-ups.
    pub fn clear(&self) {
        // The read fails if there was no wake-up.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl From<OwnedFd> for EventFd {
    /// An eventfd created by another process.
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_are_kept_until_they_are_cleared() {
        let event = EventFd::new().unwrap();
        let is_readable = || (&event.0).read(&mut [0; 8]).is_ok();
        assert!(!is_readable());
        event.wake();
        event.wake();
        assert!(is_readable());
        event.wake();
        event.clear();
        assert!(!is_readable());
    }
}
