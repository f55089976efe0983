//! State shared by all channels of one mount.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Mode, OFlags};
use sys::eventfd::EventFd;
use sys::pi_mutex::PiMutex;
use zerocopy::IntoBytes;

use crate::counters::{self, Counters};
use crate::deferred_queue::DeferredQueue;
use crate::entry_order::EntryOrder;
use crate::fail_points;
use crate::filesystem::Filesystem;
use crate::handshake::Protocol;
use crate::in_flight::RequestsInFlight;
use crate::message;
use crate::wait_order::WaitOrder;
use crate::wire::{MIN_READ_BUFFER, RetrieveOut};

/// What a mount needs in addition if its server may be replaced by another process.
#[derive(Debug)]
pub struct Restartable {
    /// The requests that the server is handling, shared with the process that replaces it.
    pub in_flight: Arc<RequestsInFlight>,
    /// Cloned, non-blocking descriptors, one per channel. When the last copy of a descriptor is
    /// closed, the kernel fails the requests that were taken through it, so another process keeps a
    /// copy of every descriptor.
    pub clones: Vec<OwnedFd>,
}

/// The device, the filesystem and the counters of one mount, and whether it has ended.
pub(crate) struct Connection {
    /// Fixed at creation.
    pub(crate) device: OwnedFd,
    /// Fixed at creation.
    pub(crate) filesystem: Arc<dyn Filesystem>,
    /// Set by the handshake.
    protocol: OnceLock<Protocol>,
    /// Fixed at creation: size of the largest request in bytes.
    max_request: usize,
    /// Guarded by its own lock: as many sets as channels were ever open at the same time.
    pub(crate) counters: PiMutex<Vec<Arc<Counters>>>,
    /// Atomic: whether the mount has ended.
    ended: AtomicBool,
    /// Fixed at creation: readable once a channel has seen the end of the mount.
    end: EventFd,
    /// The order of the threads that wait for the device.
    pub(crate) wait_order: WaitOrder,
    /// The order in which the kernel takes the entries of the rings. Used only over io_uring.
    pub(crate) entry_order: EntryOrder,
    /// Atomic: number of requests that the mount sent to itself.
    sent_to_self: AtomicU64,
    /// Set before any channel is opened: shared with a successor of this process.
    pub(crate) in_flight: OnceLock<Arc<RequestsInFlight>>,
    /// Guarded by its own lock: cloned descriptors of the device, for channels that are opened
    /// later.
    pub(crate) clones: PiMutex<Vec<OwnedFd>>,
    /// Guarded by its own lock: requests that wait for something outside the process.
    pub(crate) deferred: DeferredQueue,
}

impl Connection {
    pub(crate) fn new(
        device: OwnedFd,
        filesystem: Arc<dyn Filesystem>,
        max_request: usize,
        queues: u16,
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
            entry_order: EntryOrder::new(queues)?,
            sent_to_self: AtomicU64::new(0),
            in_flight: OnceLock::new(),
            clones: PiMutex::default(),
            deferred: DeferredQueue::default(),
        })
    }

    /// The result of the handshake. Before the handshake all values are zero and must not be used.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol.get().copied().unwrap_or_default()
    }

    pub(crate) fn agreed(&self, protocol: Protocol) {
        // Cannot fail, since this is called only once.
        let _ = self.protocol.set(protocol);
    }

    /// Size of a ring entry's payload, in bytes. The kernel refuses a payload smaller than its
    /// largest request or than the device's minimum read buffer.
    pub(crate) fn ring_payload(&self) -> usize {
        match fail_points::fails("register") {
            true => MIN_READ_BUFFER / 2,
            false => self.max_request.max(MIN_READ_BUFFER),
        }
    }

    /// Sets what a successor needs. Must be called before any channel is opened.
    pub(crate) fn make_restartable(&self, parts: Restartable) {
        // Cannot fail, since this is called only once.
        let _ = self.in_flight.set(parts.in_flight);
        *self.clones.lock() = parts.clones;
    }

    /// A descriptor for a channel. If the server may be replaced, the process that replaces it
    /// holds the same descriptor. If no cloned descriptor is left, returns a duplicate of the
    /// mount's first descriptor.
    pub(crate) fn take_clone(&self) -> io::Result<OwnedFd> {
        if let Some(clone) = self.clones.lock().pop() {
            return Ok(clone);
        }
        if self.in_flight.get().is_none()
            && let Ok(made) = clone_of(self.device.as_fd())
        {
            return Ok(made);
        }
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.device, 0)?)
    }

    /// Returns a descriptor obtained from [`take_clone`](Self::take_clone).
    pub(crate) fn return_clone(&self, clone: BorrowedFd<'_>) {
        // If duplicating fails, a later channel shares another channel's descriptor.
        if let Ok(clone) = rustix::io::fcntl_dupfd_cloexec(clone, 0) {
            self.clones.lock().push(clone);
        }
    }

    /// Descriptors that channels use or will use.
    pub(crate) fn channel_descriptors(&self) -> Vec<RawFd> {
        let mut all = self.wait_order.descriptors();
        all.extend(self.clones.lock().iter().map(AsRawFd::as_raw_fd));
        all
    }

    /// Makes the kernel put an empty request, which no program waits for, into the queue of this
    /// CPU. `file` is a regular file that the kernel knows.
    pub(crate) fn send_to_self(&self, file: u64) -> io::Result<()> {
        // Larger than the numbers of the kernel's own requests, and unique, because the kernel
        // finds an entry by this number. The lowest bit marks interrupts.
        let number = self.sent_to_self.fetch_add(1, Ordering::Relaxed) & 0xffff_ffff;
        let retrieve = RetrieveOut {
            unique: 1 << 62 | number << 1,
            nodeid: file,
            ..RetrieveOut::default()
        };
        message::notify(&self.device, RetrieveOut::CODE, [retrieve.as_bytes(), &[]])
    }

    /// Counters for a new channel; `ring` says whether the channel is over io_uring.
    pub(crate) fn new_counters(&self, ring: bool) -> Arc<Counters> {
        counters::for_channel(&mut self.counters.lock(), ring)
    }

    /// Notes the end of the mount. Called by the channel that has seen it.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.deferred.close();
        self.end.wake();
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// Clones a descriptor; the kernel keeps a separate list of pending requests for each clone. Fails
/// if `/dev/fuse` cannot be opened again, for example if fusermount3 opened it; use a duplicate in
/// that case.
pub fn clone_of(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fail_points::check("clone")?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fresh = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
    sys::fuse_ioctl::clone_into(device, fresh.as_fd())?;
    Ok(fresh)
}

impl AsFd for Connection {
    /// Readable once the mount has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}
