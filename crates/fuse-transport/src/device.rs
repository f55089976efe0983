//! The channel over a descriptor of `/dev/fuse`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::thread::CpuSet;
use sys::eventfd::EventFd;

use crate::back_off::BackOff;
use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::counters::{Counters, Record};
use crate::dispatch::{Answer, answer};
use crate::fail_points;
use crate::in_flight::Taken;
use crate::message;
use crate::reader_cpu::ReaderCpu;
use crate::reply::Reply;
use crate::request::Request;
use crate::state::{Ready, State};
use crate::timing::Timing;
use crate::wait_order::{DEVICE, Waiter};
use crate::wire::InHeader;
use sys::clock::now_ns;

/// Holds every request of a read-only mount: names are at most 255 bytes (4095 for a link target).
/// Only batches of forgets are longer, and the kernel splits those to fit the buffer.
const REQUEST_BYTES: usize = 16 << 10;

/// Marks events of the waker; those of the device are marked `wait_order::DEVICE`.
const WAKER: u64 = DEVICE + 1;

/// Descriptor, buffers and counters of one thread.
pub(crate) struct DeviceChannel {
    connection: Arc<Connection>,
    waiter: Arc<Waiter>,
    readers: ReaderCpu,
    waker: Arc<EventFd>,
    request: Buffer,
    reply: Buffer,
    counters: Arc<Counters>,
    back_off: BackOff,
    /// Where the request in flight is noted; only of a mount whose server can be replaced.
    slot: Option<usize>,
}

impl DeviceChannel {
    pub(crate) fn open(connection: &Arc<Connection>) -> io::Result<Self> {
        let device = connection.take_clone()?;
        let waker = Arc::new(EventFd::new()?);
        let waiter = Arc::new(Waiter {
            cpu: pinned_to(),
            device,
            epoll: watch(&waker)?,
        });
        let memory = |bytes| Buffer::new(bytes).ok_or_else(|| io::Error::from(Errno::NOMEM));
        let mut request = memory(REQUEST_BYTES)?;
        // Touch every page: if one is missing while the process is being killed, the kernel answers
        // the request with EIO.
        request.bytes_mut().fill(1);
        let this = Self {
            waiter,
            readers: ReaderCpu::default(),
            waker,
            request,
            reply: memory(connection.protocol().max_request)?,
            counters: connection.new_counters(false),
            back_off: BackOff::new(),
            slot: connection.in_flight().map(|shared| shared.slot()),
            connection: Arc::clone(connection),
        };
        connection.wait_order().add(&this.waiter)?;
        Ok(this)
    }

    pub(crate) fn waker(&self) -> &Arc<EventFd> {
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
        let count = match epoll::wait(&self.waiter.epoll, &mut events[..], None) {
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

    /// Takes one request, unless another thread took it first, and answers it.
    pub(crate) fn serve(&mut self) -> State {
        let read = fail_points::check_now("read")
            .and_then(|()| rustix::io::read(&self.waiter.device, self.request.bytes_mut()));
        let length = match read {
            Ok(length) => length,
            // NOENT: the request was interrupted before it was read.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => return State::Nothing,
            Err(errno) if self.back_off.passes(errno) => return State::Nothing,
            // NODEV, CONNABORTED: the mount is gone.
            Err(_) => return self.end(),
        };
        self.back_off.end();
        let timing = Timing::start();
        let (connection, bytes) = (&self.connection, &self.request.bytes()[..length]);
        let mut reply = Reply::new(self.reply.bytes_mut());
        let mut taken = None;
        let (header, opcode, answer) = match Request::from_device(bytes) {
            Ok(r) => {
                let in_flight = connection.in_flight().zip(self.slot);
                taken = in_flight.map(|(shared, slot)| shared.begin(slot, &r.header));
                let answer = match taken.as_ref().is_some_and(Taken::is_refused) {
                    true => Answer::Error(Errno::IO),
                    false => answer(connection.filesystem(), &r, &mut reply),
                };
                (r.header, r.opcode, answer)
            }
            Err(Some(header)) => (header, None, Answer::Error(Errno::INVAL)),
            Err(None) => return self.end(),
        };
        let answered = Timing::now(connection.filesystem());
        let reply_bytes = reply.length();
        let sent = self.send(&header, answer, reply_bytes);
        drop(taken);
        let reader_cpu = follow(
            &mut self.readers,
            &self.waiter,
            &self.connection,
            header.pid,
        );
        let filesystem = self.connection.filesystem();
        timing.report(filesystem, opcode, header.unique, answered, reply_bytes);
        let (cpu, run_ns) = (timing.cpu(), timing.run_ns());
        self.counters.add(&Record {
            opcode,
            failed: answer.is_failure(),
            reply_bytes,
            reader_cpu,
            cpu,
            run_ns,
        });
        match sent {
            // NOENT: the calling program is gone.
            Ok(()) | Err(Errno::NOENT) => State::Served,
            Err(_) => self.end(),
        }
    }

    fn send(&self, to: &InHeader, answer: Answer, reply_bytes: usize) -> Result<(), Errno> {
        match answer {
            Answer::Silent => Ok(()),
            Answer::Error(errno) => self.refuse(to, errno),
            Answer::Reply => match self.write(to, 0, &self.reply.bytes()[..reply_bytes]) {
                // The kernel refused the reply (a bug here): the program must not wait for another.
                Err(Errno::INVAL | Errno::FAULT | Errno::NOMEM) => self.refuse(to, Errno::IO),
                other => other,
            },
        }
    }

    fn refuse(&self, to: &InHeader, errno: Errno) -> Result<(), Errno> {
        self.write(to, -errno.raw_os_error(), &[])
    }

    fn write(&self, to: &InHeader, error: i32, body: &[u8]) -> Result<(), Errno> {
        message::send(&self.waiter.device, to.unique, error, [body, &[]])
    }

    fn end(&self) -> State {
        self.connection.end();
        State::Closed
    }

    fn close(&self) -> Ready {
        self.connection.end();
        Ready::Closed
    }
}

impl AsFd for DeviceChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.epoll.as_fd()
    }
}

/// The epoll set of one thread, with its waker.
fn watch(waker: &EventFd) -> io::Result<OwnedFd> {
    use epoll::{CreateFlags, EventData, EventFlags};
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, waker, EventData::new_u64(WAKER), EventFlags::IN)?;
    Ok(epoll)
}

/// The CPU to which the calling thread is pinned.
fn pinned_to() -> Option<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let first = cpus.next()?;
    cpus.next().is_none().then_some(first)
}

/// Lets the waiter of the reader's CPU be woken first. Returns that CPU, as far as it is known: at
/// the last sample, if that was a moment ago.
///
/// Only after the reply: reading `/proc` can wait for a lock that the reader holds while it waits.
/// For the same reason one thread does it at a time, so that the others answer what the reader asks
/// next.
fn follow(
    readers: &mut ReaderCpu,
    waiter: &Waiter,
    connection: &Connection,
    reader: u32,
) -> Option<usize> {
    let (here, order) = (waiter.cpu?, connection.wait_order());
    let began = now_ns();
    if readers.is_due(reader, began) && order.begin_following(began) {
        if let Some(cpu) = readers.sample(reader, here, began) {
            order.put_first(cpu);
        }
        order.end_following(began, now_ns());
    }
    readers.known(reader, began)
}

impl Drop for DeviceChannel {
    fn drop(&mut self) {
        self.connection.wait_order().remove(&self.waiter);
        self.connection.return_clone(self.waiter.device.as_fd());
    }
}
