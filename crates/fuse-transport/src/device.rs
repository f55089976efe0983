//! The channel over a descriptor of `/dev/fuse`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::thread::CpuSet;
use sys::eventfd::EventFd;
use sys::memory::{PAGE_SIZE, Run};

use crate::back_off::BackOff;
use crate::channel::{Channel, Ready, State};
use crate::connection::Connection;
use crate::fail_points;
use crate::reader_cpu::ReaderCpu;
use crate::responder::Responder;
use crate::wait_order::{DEVICE, WaitOrder, Waiter};
use sys::clock::now_ns;

/// Size of the request buffer. Every request of a read-only mount fits: names are at most 255 bytes
/// (4095 for a link target). Only batches of forgets are longer, and the kernel splits them to fit
/// the buffer.
const REQUEST_BYTES: usize = 16 << 10;

/// Marks events of the waker; those of the device are marked `wait_order::DEVICE`.
const WAKER: u64 = DEVICE + 1;

/// Descriptor, buffers and counters of one thread.
pub(crate) struct DeviceChannel {
    connection: Arc<Connection>,
    waiter: Arc<Waiter>,
    readers: ReaderCpu,
    waker: Arc<EventFd>,
    request: Run,
    responder: Responder,
    back_off: BackOff,
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
        let mut request = Run::map(REQUEST_BYTES / PAGE_SIZE)?;
        // Allocates every page now: if one were missing while the process is being killed, the
        // kernel would answer the request with EIO.
        request.populate()?;
        let this = Self {
            waiter,
            readers: ReaderCpu::default(),
            waker,
            request,
            responder: Responder::new(connection)?,
            back_off: BackOff::new(),
            connection: Arc::clone(connection),
        };
        connection.wait_order.add(&this.waiter)?;
        Ok(this)
    }
}

impl Channel for DeviceChannel {
    fn waker(&self) -> Arc<EventFd> {
        Arc::clone(&self.waker)
    }

    /// Sleeps in epoll. This is also called between a request and the next read: epoll costs the
    /// same as a read that finds nothing, and lets other threads take their turn.
    fn wait(&mut self) -> Ready {
        let none = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        };
        let mut events = [none; 2];
        let count = match epoll::wait(&self.waiter.epoll, &mut events[..], None) {
            Ok(count) => count,
            Err(Errno::INTR) => return Ready::Woken,
            Err(_) => {
                self.connection.end();
                return Ready::Closed;
            }
        };
        let is = |what| events[..count].iter().any(|event| event.data.u64() == what);
        if is(WAKER) {
            self.waker.clear();
        }
        match is(DEVICE) {
            true => Ready::Request,
            false => Ready::Woken,
        }
    }

    /// Takes one request, unless another thread took it first, and answers it.
    fn serve(&mut self) -> State {
        let read = fail_points::check_now("read")
            .and_then(|()| rustix::io::read(&self.waiter.device, &mut self.request[..]));
        let length = match read {
            Ok(length) => length,
            // NOENT: the request was interrupted before it was read.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => return State::Nothing,
            Err(errno) if self.back_off.passes(errno) => return State::Nothing,
            // NODEV, CONNABORTED: the mount is gone.
            Err(_) => {
                self.connection.end();
                return State::Closed;
            }
        };
        self.back_off.end();
        let (waiter, order) = (&self.waiter, &self.connection.wait_order);
        let follow = |reader| follow(&mut self.readers, waiter, order, reader);
        let request = &self.request[..length];
        self.responder.respond(waiter, request, follow)
    }
}

impl AsFd for DeviceChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.epoll.as_fd()
    }
}

/// Creates the epoll set of one thread, with its waker.
fn watch(waker: &EventFd) -> io::Result<OwnedFd> {
    use epoll::{CreateFlags, EventData, EventFlags};
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, waker, EventData::new_u64(WAKER), EventFlags::IN)?;
    Ok(epoll)
}

/// The CPU that the calling thread is pinned to.
fn pinned_to() -> Option<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let first = cpus.next()?;
    cpus.next().is_none().then_some(first)
}

/// Makes the waiter of the reader's CPU the first to be woken. Returns that CPU if a recent sample
/// shows it.
///
/// Called only after the reply: reading `/proc` can block on a lock that the reader holds while it
/// waits for the reply. For the same reason only one thread samples at a time, so that the others
/// can answer the reader's next request.
fn follow(
    readers: &mut ReaderCpu,
    waiter: &Waiter,
    order: &WaitOrder,
    reader: u32,
) -> Option<usize> {
    let here = waiter.cpu?;
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
        self.connection.wait_order.remove(&self.waiter);
        self.connection.return_clone(self.waiter.device.as_fd());
    }
}
