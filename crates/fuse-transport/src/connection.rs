//! State shared by all channels of one mount.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sys::eventfd::EventFd;

use crate::counters::{Counters, Statistics};
use crate::filesystem::Filesystem;
use crate::handshake::Protocol;
use crate::wait_order::WaitOrder;

/// The device, the filesystem and the counters of one mount, and whether it has ended.
///
/// Field tags: I = set when made; A = atomic; L = under its own lock.
pub(crate) struct Connection {
    /// I.
    device: OwnedFd,
    /// I.
    filesystem: Arc<dyn Filesystem>,
    /// I.
    protocol: Protocol,
    /// L: one set for each channel ever opened.
    counters: Mutex<Vec<Arc<Counters>>>,
    /// A.
    ended: AtomicBool,
    /// I: readable when a channel saw the end.
    end: EventFd,
    /// See its own tags.
    wait_order: WaitOrder,
}

impl Connection {
    pub(crate) fn new(
        device: OwnedFd,
        filesystem: Arc<dyn Filesystem>,
        protocol: Protocol,
    ) -> io::Result<Self> {
        Ok(Self {
            device,
            filesystem,
            protocol,
            counters: Mutex::default(),
            ended: AtomicBool::new(false),
            end: EventFd::new()?,
            wait_order: WaitOrder::new(),
        })
    }

    pub(crate) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    pub(crate) fn filesystem(&self) -> &dyn Filesystem {
        &*self.filesystem
    }

    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The threads which wait for the device.
    pub(crate) fn wait_order(&self) -> &WaitOrder {
        &self.wait_order
    }

    /// Counters of a new channel; `ring` is its transport.
    pub(crate) fn new_counters(&self, ring: bool) -> Arc<Counters> {
        let set = Arc::new(Counters::new(ring));
        self.counters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&set));
        set
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let sets = self
            .counters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Statistics::gather(sets.iter().map(|set| &**set))
    }

    /// Called by the channel which saw the end of the mount.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.end.wake();
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl AsFd for Connection {
    /// Readable when the mount has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}
