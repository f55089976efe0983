//! The channel over a descriptor of `/dev/fuse`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, IoSlice};
use zerocopy::IntoBytes;

use crate::buffer::Buffer;
use crate::channel::{Clock, Ready, State};
use crate::counters::{Counters, Record};
use crate::dispatch::{Answer, answer};
use crate::reply::{Finished, Piece, Reply};
use crate::request::Request;
use crate::session::Session;
use crate::waker::Waker;
use crate::wire::{InHeader, OutHeader};

/// Holds every request of a read-only mount: names are at most 255 bytes (4095 for a link target),
/// only forgets in batches are longer, and those the kernel cuts to the buffer.
const REQUEST_BYTES: usize = 16 << 10;

const DEVICE: u64 = 0;
const WAKER: u64 = 1;

/// One thread's way to the device: its own descriptor, buffers and counters.
pub(crate) struct DeviceChannel {
    session: Arc<Session>,
    device: OwnedFd,
    epoll: OwnedFd,
    waker: Arc<Waker>,
    request: Buffer,
    reply: Buffer,
    pieces: Vec<Piece>,
    counters: Arc<Counters>,
}

impl DeviceChannel {
    pub(crate) fn open(session: &Arc<Session>) -> io::Result<Self> {
        let device = own_descriptor(session)?;
        let waker = Arc::new(Waker::new()?);
        let epoll = watch(&device, &waker)?;
        let memory = |bytes| Buffer::new(bytes).ok_or_else(|| io::Error::from(Errno::NOMEM));
        Ok(Self {
            device,
            epoll,
            waker,
            request: memory(REQUEST_BYTES)?,
            reply: memory(session.protocol().max_request)?,
            pieces: Vec::new(),
            counters: session.new_counters(false),
            session: Arc::clone(session),
        })
    }

    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Sleeps in epoll. After a request this is called again before the next read: it costs the
    /// same as the read that finds nothing, and other threads get their turn.
    pub(crate) fn wait(&mut self) -> Ready {
        let none = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        };
        let mut events = [none; 2];
        let count = match epoll::wait(&self.epoll, &mut events[..], None) {
            Ok(count) => count,
            Err(Errno::INTR) => return Ready::Woken,
            Err(_) => return self.close(),
        };
        let is = |what| events[..count].iter().any(|event| event.data.u64() == what);
        if is(WAKER) {
            self.waker.clear();
        }
        if is(DEVICE) {
            Ready::Request
        } else {
            Ready::Woken
        }
    }

    /// Takes one request, if another thread was not faster, and answers it.
    pub(crate) fn serve(&mut self) -> State {
        let length = match rustix::io::read(&self.device, self.request.bytes_mut()) {
            Ok(length) => length,
            // NOENT: the request was given up between the queue and here.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => return State::Nothing,
            // NODEV, CONNABORTED: the mount is gone. Others cannot be recovered from.
            Err(_) => return self.end(),
        };
        let clock = Clock::start();
        let Self {
            request,
            reply,
            pieces,
            session,
            ..
        } = self;
        let mut reply = Reply::new(reply.bytes_mut(), Some(pieces));
        let (header, opcode, answer) = match Request::from_device(&request.bytes()[..length]) {
            Ok(r) => (
                r.header,
                r.opcode,
                answer(session.filesystem(), &r, &mut reply),
            ),
            Err(Some(header)) => (header, None, Answer::Error(Errno::INVAL)),
            Err(None) => return self.end(),
        };
        let answered = Clock::look(session.filesystem());
        let finished = reply.finish();
        let reply_bytes = finished.length;
        let sent = self.send(&header, answer, &finished);
        let from = (opcode, header.unique);
        clock.tell(self.session.filesystem(), from, answered, reply_bytes);
        self.pieces.clear();
        let error = matches!(answer, Answer::Error(_));
        let (cpu, run_ns) = (clock.cpu(), clock.ns());
        self.counters.add(&Record {
            opcode,
            error,
            reply_bytes,
            queue: None,
            cpu,
            run_ns,
        });
        match sent {
            // NOENT: the program that asked is gone.
            Ok(()) | Err(Errno::NOENT) => State::Served,
            Err(_) => self.end(),
        }
    }

    fn send(&self, to: &InHeader, answer: Answer, reply: &Finished) -> Result<(), Errno> {
        match answer {
            Answer::Silent => Ok(()),
            Answer::Error(errno) => self.refuse(to, errno),
            Answer::Reply => match self.reply(to, reply) {
                // The kernel found the reply unfit (a bug here), and nobody shall wait for it.
                Err(Errno::INVAL | Errno::FAULT | Errno::NOMEM) => self.refuse(to, Errno::IO),
                other => other,
            },
        }
    }

    fn refuse(&self, to: &InHeader, errno: Errno) -> Result<(), Errno> {
        let len = size_of::<OutHeader>() as u32;
        let header = OutHeader {
            len,
            error: -errno.raw_os_error(),
            unique: to.unique,
        };
        self.write(&[IoSlice::new(header.as_bytes())])
    }

    fn reply(&self, to: &InHeader, reply: &Finished) -> Result<(), Errno> {
        let len = (size_of::<OutHeader>() + reply.length) as u32;
        let header = OutHeader {
            len,
            error: 0,
            unique: to.unique,
        };
        let own = self.reply.bytes();
        let tail = IoSlice::new(&own[reply.tail.clone()]);
        if self.pieces.is_empty() {
            return self.write(&[IoSlice::new(header.as_bytes()), tail]);
        }
        let middle = self.pieces.iter().map(|piece| match piece {
            Piece::Own(range) => IoSlice::new(&own[range.clone()]),
            Piece::Shared(owner, range) => IoSlice::new(&(**owner).as_ref()[range.clone()]),
        });
        let first = std::iter::once(IoSlice::new(header.as_bytes()));
        self.write(&first.chain(middle).chain([tail]).collect::<Vec<_>>())
    }

    /// One reply is one write.
    fn write(&self, slices: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.device, slices)).map(drop)
    }

    fn end(&self) -> State {
        self.session.end();
        State::Closed
    }

    fn close(&self) -> Ready {
        self.session.end();
        Ready::Closed
    }
}

impl AsFd for DeviceChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// A descriptor of its own: the kernel then keeps the requests that this thread has taken in a list
/// of its own. Where `/dev/fuse` may not be opened again (fusermount3 opened it for us), a
/// duplicate does the same work with a shared list.
fn own_descriptor(session: &Session) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let cloned = rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(io::Error::from);
    match cloned
        .and_then(|fd| sys::fuse_device::clone_into(session.device(), fd.as_fd()).map(|()| fd))
    {
        Ok(fd) => Ok(fd),
        Err(_) => Ok(rustix::io::fcntl_dupfd_cloexec(session, 0)?),
    }
}

/// One request wakes one thread: the device is watched exclusively.
fn watch(device: &OwnedFd, waker: &Waker) -> io::Result<OwnedFd> {
    use epoll::{CreateFlags, EventData, EventFlags};
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let one = EventFlags::IN | EventFlags::EXCLUSIVE;
    epoll::add(&epoll, device, EventData::new_u64(DEVICE), one)?;
    epoll::add(&epoll, waker, EventData::new_u64(WAKER), EventFlags::IN)?;
    Ok(epoll)
}
