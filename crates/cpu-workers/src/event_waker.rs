//! A [`Waker`] made of an eventfd, for sources that poll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::Waker;

/// Readable from `wake` until `drain`.
#[derive(Debug)]
pub struct EventWaker {
    fd: OwnedFd,
}

impl EventWaker {
    /// A waker that nobody has called.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(EventWaker {
            fd: eventfd(0, flags)?,
        })
    }

    /// Forgets the calls so far.
    pub fn drain(&self) {
        let mut count = [0; 8];
        // Nothing to read means nobody called: fine.
        let _ = rustix::io::read(&self.fd, &mut count);
    }
}

impl Waker for EventWaker {
    fn wake(&self) {
        // The only failure is a counter that is full, and then it is readable anyway.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }
}

impl AsFd for EventWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
