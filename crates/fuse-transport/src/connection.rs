//! State shared by all channels of one mount.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use sys::eventfd::EventFd;
use sys::pi_mutex::PiMutex;

use crate::counters::{Counters, Statistics};
use crate::fail_points;
use crate::filesystem::Filesystem;
use crate::handshake::Protocol;
use crate::interrupts::Interrupts;
use crate::standby::Standby;
use crate::wait_order::WaitOrder;
use crate::wire::MIN_READ_BUFFER;

/// The device, the filesystem and the counters of one mount, and whether it has ended.
///
/// Field tags: I = set when made; A = atomic; L = under its own lock.
pub(crate) struct Connection {
    /// I.
    device: OwnedFd,
    /// I.
    filesystem: Arc<dyn Filesystem>,
    /// Set by the handshake.
    protocol: OnceLock<Protocol>,
    /// I: bytes of the largest request.
    max_request: usize,
    /// L: one set for each channel ever opened.
    counters: PiMutex<Vec<Arc<Counters>>>,
    /// A.
    ended: AtomicBool,
    /// I: readable when a channel saw the end.
    end: EventFd,
    /// See its own tags.
    wait_order: WaitOrder,
    /// See its own tags.
    interrupts: Arc<Interrupts>,
    /// See its own tag.
    standby: Standby,
}

impl Connection {
    pub(crate) fn new(
        device: OwnedFd,
        filesystem: Arc<dyn Filesystem>,
        max_request: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            device,
            filesystem,
            protocol: OnceLock::new(),
            max_request,
            counters: PiMutex::default(),
            ended: AtomicBool::new(false),
            end: EventFd::new()?,
            wait_order: WaitOrder::new(),
            interrupts: Arc::new(Interrupts::new()),
            standby: Standby::default(),
        })
    }

    pub(crate) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    pub(crate) fn filesystem(&self) -> &dyn Filesystem {
        &*self.filesystem
    }

    /// What the handshake agreed on; before it, nothing that may be used.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol.get().copied().unwrap_or_default()
    }

    pub(crate) fn agreed(&self, protocol: Protocol) {
        // Called once.
        let _ = self.protocol.set(protocol);
    }

    /// Bytes of the payload of a ring's entry: the kernel refuses smaller ones than its largest
    /// request, and than the smallest buffer for reads of the device.
    pub(crate) fn ring_payload(&self) -> usize {
        match fail_points::fails("register") {
            true => MIN_READ_BUFFER / 2,
            false => self.max_request.max(MIN_READ_BUFFER),
        }
    }

    /// The threads which wait for the device.
    pub(crate) fn wait_order(&self) -> &WaitOrder {
        &self.wait_order
    }

    /// Requests without a reader.
    pub(crate) fn interrupts(&self) -> &Arc<Interrupts> {
        &self.interrupts
    }

    /// The threads that stand by.
    pub(crate) fn standby(&self) -> &Standby {
        &self.standby
    }

    /// Counters of a new channel; `ring` is its transport.
    pub(crate) fn new_counters(&self, ring: bool) -> Arc<Counters> {
        let set = Arc::new(Counters::new(ring));
        self.counters.lock().push(Arc::clone(&set));
        set
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let sets = self.counters.lock().clone();
        Statistics::gather(sets.iter().map(|set| &**set))
    }

    /// Called by the channel which saw the end of the mount.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.end.wake();
        self.standby.end();
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
