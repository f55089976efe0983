//! A session: one mount from the handshake to its end, and its channels.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use sys::memory::{PAGE_SIZE, Run};
use sys::pi_mutex::PiMutex;
use zerocopy::IntoBytes;

use crate::channel::Channel;
use crate::connection::Connection;
pub use crate::connection::Restartable;
use crate::counters::Statistics;
use crate::deferred::DeferredChannel;
use crate::device::DeviceChannel;
use crate::fail_points;
use crate::filesystem::Filesystem;
use crate::handshake::{Config, Protocol, Verdict, negotiate};
use crate::in_flight::RequestsInFlight;
use crate::message;
use crate::page_store::PageStore;
use crate::request::Request;
use crate::ring::PreparedChannel;
use crate::rings::Rings;
use crate::turn_channel::TurnChannel;
use crate::wire::{InHeader, InitIn, MIN_READ_BUFFER, MINOR_OLDEST, Opcode, RESEND_CODE};

/// Why a session could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel's protocol is too old.
    #[error(
        "the kernel speaks FUSE {major}.{minor}, but at least 7.{MINOR_OLDEST} (Linux 5.4) is \
         needed"
    )]
    TooOld {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
    },
    /// The mount ended before the handshake.
    #[error("the filesystem was unmounted before the kernel's first request")]
    Gone,
    /// Another request arrived first.
    #[error("the kernel's first request has opcode {0}, not INIT")]
    NotInit(u32),
    /// There is no memory.
    #[error("no memory for a buffer of {MIN_READ_BUFFER} bytes")]
    NoMemory,
    /// There is no memory for a ring, or the kernel refused it.
    #[error("FUSE over io_uring: {0}")]
    Ring(#[source] io::Error),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The call that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    fn io<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Io {
            what,
            source: error.into(),
        }
    }
}

/// One mounted filesystem. The session holds a descriptor of `/dev/fuse`. When the last descriptor
/// of the mount in any process is closed, the kernel fails every pending request. If another
/// process holds descriptors too, the requests stay pending, and a new server can [take
/// over](Self::resume).
pub struct Session {
    connection: Arc<Connection>,
    /// The rings that the handshake offered to use.
    rings: Option<Rings>,
    /// The overflow channel, until its thread takes it.
    overflow: PiMutex<Option<PreparedChannel>>,
}

impl Session {
    /// Answers INIT on `device`, which must already be mounted. Programs that use the mount wait
    /// until channels serve it. If there are `rings`, the handshake offers io_uring; once the
    /// kernel agrees, every request waits until the rings are registered.
    pub fn start(
        device: OwnedFd,
        filesystem: Arc<dyn Filesystem>,
        config: &Config,
        rings: Option<Rings>,
    ) -> Result<Arc<Self>, Error> {
        let none = None::<fn() -> Result<Restartable, Error>>;
        Self::start_restartable(device, filesystem, config, rings, none)
    }

    /// Like [`start`](Self::start), for a mount whose server may be replaced. `restartable` is
    /// called if the handshake shows that the kernel can send requests again.
    pub fn start_restartable<E: From<Error>>(
        device: OwnedFd,
        filesystem: Arc<dyn Filesystem>,
        config: &Config,
        rings: Option<Rings>,
        restartable: Option<impl FnOnce() -> Result<Restartable, E>>,
    ) -> Result<Arc<Self>, E> {
        let page = rustix::param::page_size();
        let queues = rings.as_ref().map_or(0, Rings::queues);
        let connection = Connection::new(device, filesystem, config.max_request(page), queues);
        let connection = Arc::new(connection.map_err(Error::io("eventfd"))?);
        let prepare = |rings| PreparedChannel::overflow(&connection, rings);
        let overflow = rings.as_ref().map(prepare).transpose();
        let overflow = overflow.map_err(Error::Ring)?;
        let device = connection.device.as_fd();
        let protocol = shake_hands(device, config, overflow.is_some(), page)?;
        connection.agreed(protocol);
        let can = protocol.resend && !protocol.io_uring;
        if let Some(parts) = restartable.filter(|_| can).map(|make| make()).transpose()? {
            parts.in_flight.set_protocol(protocol);
            connection.make_restartable(parts);
        }
        let rings = rings.filter(|_| protocol.io_uring);
        Ok(Self::with_connection(connection, rings, overflow)?)
    }

    /// Takes over a mount from a server that is gone; `protocol` is the result of its handshake.
    /// Call [`resend`](Self::resend) once channels serve.
    pub fn resume(
        device: OwnedFd,
        filesystem: Arc<dyn Filesystem>,
        protocol: Protocol,
        restartable: Restartable,
    ) -> Result<Arc<Self>, Error> {
        let connection = Connection::new(device, filesystem, protocol.max_request, 0);
        let connection = Arc::new(connection.map_err(Error::io("eventfd"))?);
        connection.agreed(protocol);
        connection.make_restartable(restartable);
        Self::with_connection(connection, None, None)
    }

    /// Makes the kernel resend the requests that were taken but not answered.
    ///
    /// # Errors
    /// The kernel is too old, or the mount is gone.
    pub fn resend(&self) -> io::Result<()> {
        message::notify(&self.connection.device, RESEND_CODE, [&[], &[]])
    }

    fn with_connection(
        connection: Arc<Connection>,
        rings: Option<Rings>,
        overflow: Option<PreparedChannel>,
    ) -> Result<Arc<Self>, Error> {
        let device = &connection.device;
        let flags = rustix::fs::fcntl_getfl(device).map_err(Error::io("fcntl of /dev/fuse"))?;
        // Channels sleep in epoll, where they can also be woken.
        rustix::fs::fcntl_setfl(device, flags | OFlags::NONBLOCK)
            .map_err(Error::io("fcntl of /dev/fuse"))?;
        Ok(Arc::new(Self {
            connection,
            rings,
            overflow: PiMutex::new(overflow),
        }))
    }

    /// The parameters agreed on in the handshake.
    pub fn protocol(&self) -> Protocol {
        self.connection.protocol()
    }

    /// The requests in flight that a replacement server will see; `None` if this server cannot be
    /// replaced.
    pub fn in_flight(&self) -> Option<&Arc<RequestsInFlight>> {
        self.connection.in_flight.get()
    }

    /// Adds cloned descriptors for channels of the device. If none is left, a channel opens
    /// `/dev/fuse` and clones the mount's descriptor, or shares that descriptor if it may not open
    /// the device.
    pub fn add_clones(&self, clones: Vec<OwnedFd>) {
        self.connection.clones.lock().extend(clones);
    }

    /// A channel that takes requests from the device, for the calling thread.
    pub fn device_channel(self: &Arc<Self>) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(DeviceChannel::open(&self.connection)?))
    }

    /// A channel that answers the requests that the filesystem [defers](crate::Failure), for the
    /// calling thread. Only requests from the device can be deferred.
    pub fn deferred_channel(self: &Arc<Self>) -> io::Result<DeferredChannel> {
        DeferredChannel::open(&self.connection)
    }

    /// The channel of one CPU's queue, for the calling thread, which should be pinned to that CPU.
    /// Only the thread that opened this channel can use it. Open the overflow channel first.
    ///
    /// # Errors
    /// The kernel's error, or EOPNOTSUPP if io_uring was not agreed on.
    pub fn cpu_channel(self: &Arc<Self>, cpu: usize) -> io::Result<Box<dyn Channel>> {
        fail_points::check("cpu")?;
        let prepared = PreparedChannel::of_cpu(&self.connection, self.rings()?, cpu)?;
        Ok(Box::new(prepared.start()?))
    }

    /// The channel of the overflow queue, for the calling thread. If the handshake agreed on
    /// io_uring, all requests wait until this channel is open, and then arrive over io_uring.
    /// FORGET and INTERRUPT still arrive on the device, so one
    /// [`device_channel`](Self::device_channel) must be served in addition.
    ///
    /// # Errors
    /// The same errors as for [`cpu_channel`](Self::cpu_channel). If the kernel refuses an entry,
    /// requests arrive on the device.
    pub fn overflow_channel(self: &Arc<Self>) -> io::Result<Box<dyn Channel>> {
        let prepared = self.overflow.lock().take();
        let make = || PreparedChannel::overflow(&self.connection, self.rings()?);
        Ok(Box::new(prepared.map_or_else(make, Ok)?.start()?))
    }

    /// A channel for the calling thread that takes no requests, but keeps single requests with the
    /// channel of their CPU. The calling thread is pinned to one CPU after another. Serve it in
    /// addition to the channels over io_uring.
    pub fn turn_channel(self: &Arc<Self>) -> io::Result<Box<dyn Channel>> {
        let connection = Arc::clone(&self.connection);
        Ok(Box::new(TurnChannel { connection }))
    }

    /// A handle that writes to the page cache, with a separate descriptor.
    pub fn page_store(&self) -> io::Result<PageStore> {
        PageStore::new(self.connection.device.as_fd())
    }

    fn rings(&self) -> io::Result<&Rings> {
        self.rings.as_ref().ok_or(Errno::OPNOTSUPP.into())
    }

    /// Descriptors of rings that no thread uses yet, and the device descriptors from which threads
    /// take requests.
    pub fn channel_descriptors(&self) -> Vec<RawFd> {
        let overflow = self
            .overflow
            .lock()
            .as_ref()
            .map(PreparedChannel::descriptor);
        let free = self.rings.as_ref().map(Rings::descriptors);
        let devices = self.connection.channel_descriptors();
        let rings = free.into_iter().flatten().chain(overflow);
        rings.chain(devices).collect()
    }

    /// Sums over all channels, including those that have ended.
    pub fn statistics(&self) -> Statistics {
        // Gathered without the lock, for which new channels wait.
        let sets = self.connection.counters.lock().clone();
        Statistics::gather(&sets)
    }

    /// Whether a channel has seen the mount end: it was unmounted or aborted, or the device failed.
    pub fn ended(&self) -> bool {
        self.connection.ended()
    }
}

impl AsFd for Session {
    /// Readable once a channel has seen the end of the mount. Do not poll the device itself for
    /// this: with each request the kernel wakes all pollers of the device, whatever events they
    /// wait for.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("protocol", &self.protocol())
            .finish_non_exhaustive()
    }
}

fn shake_hands(
    device: BorrowedFd<'_>,
    config: &Config,
    io_uring: bool,
    page: usize,
) -> Result<Protocol, Error> {
    let mut buffer = Run::map(MIN_READ_BUFFER / PAGE_SIZE).map_err(|_| Error::NoMemory)?;
    loop {
        let length = read_first(device, &mut buffer)?;
        let (header, init) = parse_init(&buffer[..length])?;
        let (out, verdict) = negotiate(&init, config, io_uring, page);
        if verdict == Verdict::TooOld {
            // With this error the kernel ends the mount, and every access by a program fails
            // immediately.
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

fn read_first(device: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Error> {
    loop {
        match rustix::io::read(device, &mut *buffer) {
            Err(Errno::INTR | Errno::NOENT) => {}
            Err(Errno::NODEV | Errno::CONNABORTED) => return Err(Error::Gone),
            other => return other.map_err(Error::io("read of /dev/fuse")),
        }
    }
}

fn parse_init(bytes: &[u8]) -> Result<(InHeader, InitIn), Error> {
    let other = |header: InHeader| Error::NotInit(header.opcode);
    let request =
        Request::from_device(bytes).map_err(|header| other(header.unwrap_or_default()))?;
    let is_init = request.opcode == Some(Opcode::Init);
    let init = is_init.then(|| InitIn::parse(request.fixed)).flatten();
    Ok((request.header, init.ok_or(other(request.header))?))
}

fn send(device: BorrowedFd<'_>, to: &InHeader, error: i32, body: &[u8]) -> Result<(), Error> {
    let sent = message::send(device, to.unique, error, [body, &[]]);
    sent.map_err(Error::io("reply to INIT on /dev/fuse"))
}
