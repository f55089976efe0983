//! One mount: the handshake, its channels, its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::io::{Errno, IoSlice};
use zerocopy::IntoBytes;

use crate::buffer::Buffer;
use crate::channel::Channel;
use crate::counters::{Counters, Statistics};
use crate::device::DeviceChannel;
use crate::filesystem::Filesystem;
use crate::handshake::{Config, Protocol, Verdict, negotiate};
use crate::request::Request;
use crate::ring::RingChannel;
use crate::waker::Waker;
use crate::wire::{InHeader, InitIn, MIN_READ_BUFFER, MINOR_OLDEST, Opcode, OutHeader, StoreOut};

/// Why a session could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel's protocol is too old.
    #[error(
        "the kernel speaks FUSE {major}.{minor}, at least 7.{MINOR_OLDEST} (Linux 5.4) is needed"
    )]
    TooOld {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// The mount went away before it began.
    #[error("the mount was taken away before the kernel's first request")]
    Gone,
    /// Something else came first.
    #[error("the kernel's first request is of kind {opcode}, not INIT")]
    NotInit {
        /// Its number.
        opcode: u32,
    },
    /// No memory.
    #[error("no memory for a buffer of {MIN_READ_BUFFER} bytes")]
    NoMemory,
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// Which.
        what: &'static str,
        /// How.
        source: io::Error,
    },
}

impl Error {
    fn io(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Io {
            what,
            source: errno.into(),
        }
    }
}

/// One mounted filesystem. Holds the descriptor of `/dev/fuse`; when the last descriptor of it
/// closes, because the daemon ends or dies, the kernel ends every waiting request with an error.
pub struct Session {
    device: OwnedFd,
    filesystem: Arc<dyn Filesystem>,
    protocol: Protocol,
    /// Grows with channels, which are few and live long.
    counters: Mutex<Vec<Arc<Counters>>>,
    ended: AtomicBool,
    /// Readable when a channel saw the end.
    end: Waker,
    /// The ring of the overflow queue is open.
    ring: AtomicBool,
}

impl Session {
    /// Answers the kernel's first request on `device`, which must be mounted already, and returns
    /// when both sides agree. Programs that use the mount wait until channels serve it.
    pub fn start(
        device: OwnedFd,
        filesystem: Arc<dyn Filesystem>,
        config: &Config,
    ) -> Result<Arc<Self>, Error> {
        let protocol = shake_hands(&device, config)?;
        let flags = rustix::fs::fcntl_getfl(&device).map_err(Error::io("fcntl of /dev/fuse"))?;
        // From here on, channels sleep in epoll, where they can also be woken.
        rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK)
            .map_err(Error::io("fcntl of /dev/fuse"))?;
        let end = Waker::new().map_err(|source| Error::Io {
            what: "eventfd",
            source,
        })?;
        Ok(Arc::new(Self {
            device,
            filesystem,
            protocol,
            counters: Mutex::default(),
            ended: AtomicBool::new(false),
            end,
            ring: AtomicBool::new(false),
        }))
    }

    /// What was agreed.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// A channel that takes requests from the device, for the calling thread.
    pub fn device_channel(self: &Arc<Self>) -> io::Result<Channel> {
        DeviceChannel::open(self).map(Channel::from)
    }

    /// The channel of one CPU's queue, for the calling thread, which should be pinned there. Only
    /// the thread that opened it can use it. Open the overflow channel before.
    ///
    /// # Errors
    /// The kernel's refusal, or EOPNOTSUPP when io_uring was not agreed on.
    pub fn cpu_channel(self: &Arc<Self>, cpu: usize) -> io::Result<Channel> {
        self.check_ring()?;
        RingChannel::open(self, cpu).map(Channel::from)
    }

    /// The channel that stands in for every CPU, for the calling thread. When it is open, requests
    /// come over io_uring; until then all of them wait, if io_uring was agreed on. FORGET and
    /// INTERRUPT keep coming from the device, for which one
    /// [`device_channel`](Self::device_channel) must be served beside it.
    ///
    /// # Errors
    /// As for [`cpu_channel`](Self::cpu_channel). Where the kernel refused an entry, it goes on over
    /// the device.
    pub fn overflow_channel(self: &Arc<Self>) -> io::Result<Channel> {
        self.check_ring()?;
        let channel = RingChannel::open_overflow(self)?;
        self.ring.store(true, Ordering::Release);
        Ok(Channel::from(channel))
    }

    /// Puts bytes of a file into the page cache. Only whole pages become readable there, and the
    /// last part of the file; the bytes must lie inside of it. Works beside both kinds of channels.
    ///
    /// This waits for pages that are being read: the thread that calls must not be one that others
    /// need for their replies.
    ///
    /// # Errors
    /// ENOENT when the kernel does not know the node (any more).
    pub fn store(&self, node: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let store = StoreOut {
            nodeid: node,
            offset,
            size: u32::try_from(bytes.len()).map_err(|_| Errno::INVAL)?,
            padding: 0,
        };
        let header = OutHeader {
            len: (size_of::<OutHeader>() + size_of::<StoreOut>() + bytes.len()) as u32,
            error: StoreOut::CODE,
            unique: 0,
        };
        let slices = [
            IoSlice::new(header.as_bytes()),
            IoSlice::new(store.as_bytes()),
            IoSlice::new(bytes),
        ];
        rustix::io::writev(&self.device, &slices)?;
        Ok(())
    }

    fn check_ring(&self) -> io::Result<()> {
        if self.protocol.io_uring {
            Ok(())
        } else {
            Err(Errno::OPNOTSUPP.into())
        }
    }

    /// Whether requests come over io_uring.
    pub fn uses_ring(&self) -> bool {
        self.ring.load(Ordering::Acquire)
    }

    /// Sums over all channels, also those that have ended.
    pub fn statistics(&self) -> Statistics {
        let sets = self
            .counters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Statistics::gather(sets.iter().map(|set| &**set))
    }

    /// Whether a channel saw the end: unmounted, aborted, or the device failed.
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.end.wake();
    }

    pub(crate) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    pub(crate) fn filesystem(&self) -> &dyn Filesystem {
        &*self.filesystem
    }

    pub(crate) fn new_counters(&self, ring: bool) -> Arc<Counters> {
        let set = Arc::new(Counters::new(ring));
        self.counters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&set));
        set
    }
}

impl AsFd for Session {
    /// Readable when a channel saw the end of the mount. The device itself is no place to sleep
    /// for that: the kernel wakes whoever polls it, for whatever events, with every request.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

fn shake_hands(device: &OwnedFd, config: &Config) -> Result<Protocol, Error> {
    let mut buffer = Buffer::new(MIN_READ_BUFFER).ok_or(Error::NoMemory)?;
    loop {
        let length = read_first(device, buffer.bytes_mut())?;
        let (header, init) = parse_init(&buffer.bytes()[..length])?;
        let (out, verdict) = negotiate(&init, config);
        if verdict == Verdict::TooOld {
            // EPROTO ends the mount; every other program's access fails at once.
            send(device, &header, -Errno::PROTO.raw_os_error(), &[])?;
            return Err(Error::TooOld {
                major: init.major,
                minor: init.minor,
            });
        }
        send(device, &header, 0, out.as_bytes())?;
        if let Verdict::Agreed(protocol) = verdict {
            return Ok(protocol);
        }
    }
}

fn read_first(device: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Error> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Err(Errno::INTR | Errno::NOENT) => {}
            Err(Errno::NODEV | Errno::CONNABORTED) => return Err(Error::Gone),
            other => return other.map_err(Error::io("read of /dev/fuse")),
        }
    }
}

fn parse_init(bytes: &[u8]) -> Result<(InHeader, InitIn), Error> {
    let request = Request::from_device(bytes).map_err(|header| Error::NotInit {
        opcode: header.map_or(0, |h| h.opcode),
    })?;
    let other = Error::NotInit {
        opcode: request.header.opcode,
    };
    if request.opcode != Some(Opcode::Init) {
        return Err(other);
    }
    InitIn::parse(request.fixed)
        .map(|init| (request.header, init))
        .ok_or(other)
}

fn send(device: &OwnedFd, to: &InHeader, error: i32, body: &[u8]) -> Result<(), Error> {
    let len = (size_of::<OutHeader>() + body.len()) as u32;
    let header = OutHeader {
        len,
        error,
        unique: to.unique,
    };
    let slices = [IoSlice::new(header.as_bytes()), IoSlice::new(body)];
    rustix::io::writev(device, &slices)
        .map(drop)
        .map_err(Error::io("reply to INIT on /dev/fuse"))
}
