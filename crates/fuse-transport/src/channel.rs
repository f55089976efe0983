//! The channel of one serving thread, over either transport.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use sys::eventfd::EventFd;

use crate::device::DeviceChannel;
use crate::ring::RingChannel;
use crate::state::{Ready, State};
use crate::turn_channel::TurnChannel;

/// Takes requests and answers them, on one thread.
pub struct Channel(Kind);

enum Kind {
    Device(DeviceChannel),
    Ring(Box<RingChannel>),
    Turns(TurnChannel),
}

impl Channel {
    /// Sleeps until there is a request, the waker was called, or the mount is gone.
    pub fn wait(&mut self) -> Ready {
        match &mut self.0 {
            Kind::Device(channel) => channel.wait(),
            Kind::Ring(channel) => channel.wait(),
            Kind::Turns(channel) => channel.wait(),
        }
    }

    /// Takes one request, if there is one, and answers it.
    pub fn serve(&mut self) -> State {
        match &mut self.0 {
            Kind::Device(channel) => channel.serve(),
            Kind::Ring(channel) => channel.serve(),
            Kind::Turns(channel) => channel.serve(),
        }
    }

    /// Sends the last reply, if the next [`wait`](Self::wait) would do it: to be called before the
    /// thread does something else.
    pub fn flush(&mut self) {
        if let Kind::Ring(channel) = &mut self.0 {
            channel.flush();
        }
    }

    /// Ends this channel's sleep from another thread.
    pub fn waker(&self) -> Arc<EventFd> {
        match &self.0 {
            Kind::Device(channel) => Arc::clone(channel.waker()),
            Kind::Ring(channel) => Arc::clone(channel.waker()),
            Kind::Turns(channel) => Arc::clone(channel.waker()),
        }
    }

    /// Serves until the mount is gone, on a thread which does nothing else.
    pub fn run(mut self) {
        loop {
            match self.wait() {
                Ready::Closed => return,
                Ready::Request if self.serve() == State::Closed => return,
                _ => {}
            }
        }
    }
}

impl From<DeviceChannel> for Channel {
    fn from(channel: DeviceChannel) -> Self {
        Self(Kind::Device(channel))
    }
}

impl From<RingChannel> for Channel {
    fn from(channel: RingChannel) -> Self {
        Self(Kind::Ring(Box::new(channel)))
    }
}

impl From<TurnChannel> for Channel {
    fn from(channel: TurnChannel) -> Self {
        Self(Kind::Turns(channel))
    }
}

impl AsFd for Channel {
    /// Readable when [`Channel::wait`] may not sleep.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Device(channel) => channel.as_fd(),
            Kind::Ring(channel) => channel.as_fd(),
            Kind::Turns(channel) => channel.as_fd(),
        }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}
