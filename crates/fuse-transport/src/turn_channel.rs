//! The channel of the thread that takes workers' entries out of their queues (`entry_order.rs`).
//!
//! The notification that this thread sends makes the kernel find an inode. If that inode is just
//! being evicted, the kernel waits for reads of it that are in flight, and those may be in the ring
//! of the very thread that sends the notification. Therefore this thread has no ring.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use sys::eventfd::EventFd;

use crate::channel::{Channel, Ready, State};
use crate::connection::Connection;

/// Waits for requested turns.
pub(crate) struct TurnChannel {
    pub(crate) connection: Arc<Connection>,
}

impl Channel for TurnChannel {
    fn waker(&self) -> Arc<EventFd> {
        Arc::clone(&self.connection.entry_order.asked)
    }

    fn wait(&mut self) -> Ready {
        let order = &self.connection.entry_order;
        order.serve_from_here();
        let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut polled = [of(order.asked.as_fd()), of(self.connection.as_fd())];
        match poll(&mut polled, None) {
            Err(Errno::INTR) => return Ready::Woken,
            Ok(_) if !self.connection.ended() => {}
            _ => return Ready::Closed,
        }
        order.asked.clear();
        Ready::Request
    }

    /// Carries out the requested turn.
    fn serve(&mut self) -> State {
        let order = &self.connection.entry_order;
        while let Some(asked) = order.take() {
            // The kernel puts the request into the queue of the CPU on which this thread runs.
            if self.connection.send_to_self(asked.file).is_err() {
                order.give_up(asked.cpu);
            }
        }
        State::Served
    }
}

impl AsFd for TurnChannel {
    /// Readable if a turn was requested.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.entry_order.asked.as_fd()
    }
}
