//! One serving thread's way to the kernel.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};

use crate::device::DeviceChannel;
use crate::filesystem::{Filesystem, Served};
use crate::ring::RingChannel;
use crate::waker::Waker;
use crate::wire::Opcode;

/// Why [`Channel::wait`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ready {
    /// There may be a request: call [`Channel::serve`].
    Request,
    /// The waker was called, or a signal came.
    Woken,
    /// The mount is gone.
    Closed,
}

/// What [`Channel::serve`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// One request was answered.
    Served,
    /// Another thread was faster.
    Nothing,
    /// The mount is gone.
    Closed,
}

/// Takes requests and answers them, on one thread.
pub struct Channel(Kind);

enum Kind {
    Device(DeviceChannel),
    Ring(Box<RingChannel>),
}

impl Channel {
    /// Sleeps until there is a request, the waker was called, or the mount is gone.
    pub fn wait(&mut self) -> Ready {
        match &mut self.0 {
            Kind::Device(channel) => channel.wait(),
            Kind::Ring(channel) => channel.wait(),
        }
    }

    /// Takes one request, if there is one, and answers it.
    pub fn serve(&mut self) -> State {
        match &mut self.0 {
            Kind::Device(channel) => channel.serve(),
            Kind::Ring(channel) => channel.serve(),
        }
    }

    /// Ends this channel's sleep from another thread.
    pub fn waker(&self) -> Arc<Waker> {
        match &self.0 {
            Kind::Device(channel) => Arc::clone(channel.waker()),
            Kind::Ring(channel) => Arc::clone(channel.waker()),
        }
    }

    /// Serves until the mount is gone: the life of a thread that has nothing else to do.
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

impl AsFd for Channel {
    /// Readable when [`Channel::wait`] may not sleep.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Device(channel) => channel.as_fd(),
            Kind::Ring(channel) => channel.as_fd(),
        }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}

/// When and where a request is served.
pub(crate) struct Clock(u64);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(now_ns())
    }

    /// The time now, when the filesystem wants to hear of the request.
    pub(crate) fn look(filesystem: &dyn Filesystem) -> Option<u64> {
        filesystem.times().then(now_ns)
    }

    /// Tells the filesystem that the request was served.
    pub(crate) fn tell(
        &self,
        filesystem: &dyn Filesystem,
        (opcode, unique): (Option<Opcode>, u64),
        answered: Option<u64>,
        bytes: usize,
    ) {
        if let Some(answered_ns) = answered {
            filesystem.served(&Served {
                opcode,
                unique,
                taken_ns: self.0,
                answered_ns,
                sent_ns: now_ns(),
                bytes,
            });
        }
    }

    pub(crate) fn ns(&self) -> u64 {
        now_ns().saturating_sub(self.0)
    }

    pub(crate) fn cpu(&self) -> usize {
        rustix::thread::sched_getcpu()
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
