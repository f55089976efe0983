//! The channel over io_uring: requests of one CPU's queue, or of all queues.
//!
//! The kernel puts a request into the queue of the CPU that asks. Two kinds of channels serve:
//!
//! * the channel of a CPU, whose thread is pinned there. The kernel takes the entry that was
//!   returned last, so these are used as long as one is free;
//! * the overflow channel, with one entry in the queue of **every possible** CPU. It makes the
//!   rings complete, without which the kernel would let every request wait; it takes what a busy
//!   CPU's entries cannot; and it stands in for CPUs whose thread has not come yet or has gone, so
//!   that every queue always has a thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use sys::eventfd::EventFd;
use sys::fuse_ring::{DisabledRing, Event, FuseRing, PreparedRing};
use zerocopy::{FromBytes, IntoBytes};

use crate::connection::Connection;
use crate::counters::{Counters, Record};
use crate::dispatch::{Answer, answer};
use crate::fail_points;
use crate::interrupts;
use crate::reply::Reply;
use crate::request::Request;
use crate::rings::{ENTRIES, possible_cpus};
use crate::state::{Ready, State};
use crate::timing::Timing;
use crate::wire::{InHeader, MIN_READ_BUFFER, OutHeader, RingHeader};

/// Rounds of serving what is left before a ring closes, should it never become quiet.
const LAST_ROUNDS: usize = 1000;

/// The ring of one thread.
pub(crate) struct RingChannel {
    connection: Arc<Connection>,
    ring: FuseRing,
    waker: Arc<EventFd>,
    /// Entry of the request which `wait` found.
    next: Option<usize>,
    /// Names and values of the request, copied because the reply overwrites their buffer.
    rest: Vec<u8>,
    counters: Arc<Counters>,
}

/// A channel whose ring is ready but for its registration.
pub(crate) struct PreparedChannel {
    connection: Arc<Connection>,
    ring: PreparedRing,
    waker: Arc<EventFd>,
}

impl PreparedChannel {
    /// Serves all queues, or the one of a CPU.
    pub(crate) fn new(
        connection: &Arc<Connection>,
        ring: DisabledRing,
        cpu: Option<usize>,
    ) -> io::Result<Self> {
        let queues = match cpu {
            Some(cpu) => vec![(u16::try_from(cpu).map_err(|_| Errno::RANGE)?, ENTRIES)],
            None => (0..possible_cpus()?).map(|queue| (queue, 1)).collect(),
        };
        let waker = Arc::new(EventFd::new()?);
        fail_points::check("memory")?;
        let (device, payload) = (connection.device(), connection.ring_payload());
        let ring = PreparedRing::new(ring, device, waker.as_fd(), &queues, payload)?;
        Ok(Self {
            connection: Arc::clone(connection),
            ring,
            waker,
        })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.ring.as_fd().as_raw_fd()
    }

    /// Registers with the kernel, for the calling thread.
    pub(crate) fn start(self) -> io::Result<RingChannel> {
        let ring = self.ring.start()?;
        Ok(RingChannel {
            counters: self.connection.new_counters(true),
            connection: self.connection,
            ring,
            waker: self.waker,
            next: None,
            rest: Vec::new(),
        })
    }
}

impl RingChannel {
    pub(crate) fn waker(&self) -> &Arc<EventFd> {
        &self.waker
    }

    /// Submits the last reply, which [`wait`](Self::wait) would do otherwise.
    pub(crate) fn flush(&mut self) {
        // A failure comes again in `wait`, which ends the channel.
        let _ = self.ring.flush();
    }

    /// Submits the last reply and sleeps for the next request, with one system call.
    pub(crate) fn wait(&mut self) -> Ready {
        if self.ring.wait().is_err() {
            return self.end();
        }
        loop {
            match self.ring.next_event() {
                None => return Ready::Woken,
                Some(Event::Woken) => {
                    self.waker.clear();
                    self.ring.watch_waker();
                    return Ready::Woken;
                }
                Some(Event::Request(number)) => {
                    self.next = Some(number);
                    return Ready::Request;
                }
                Some(Event::Lost(..)) if self.ring.is_alive() => {}
                Some(Event::Lost(..)) => return self.end(),
            }
        }
    }

    /// Answers the request that `wait` found.
    pub(crate) fn serve(&mut self) -> State {
        match self.next.take() {
            Some(number) => self.serve_entry(number),
            None => return State::Nothing,
        }
        State::Served
    }

    fn serve_entry(&mut self, number: usize) {
        let timing = Timing::start();
        let queue = self.ring.queue(number);
        let (bytes, payload) = self.ring.message(number);
        let Ok(header) = RingHeader::mut_from_bytes(bytes) else {
            unreachable!("the header has its size and begins on a page")
        };
        let to = InHeader::read_from_prefix(&header.in_out)
            .map_or_else(|_| InHeader::default(), |(h, _)| h);
        let length = (header.entry.payload_size as usize).min(payload.len());
        self.rest.clear();
        // Writes are refused unread; no name is longer than this.
        self.rest
            .extend_from_slice(&payload[..length.min(MIN_READ_BUFFER)]);
        let mut reply = Reply::new(payload);
        interrupts::begin(self.connection.interrupts(), &to);
        let (opcode, answer) = match Request::from_ring(to, &header.fixed, &self.rest) {
            Ok(request) => (
                request.opcode,
                answer(self.connection.filesystem(), &request, &mut reply),
            ),
            Err(_) => (None, Answer::Error(Errno::INVAL)),
        };
        interrupts::end();
        let answered = Timing::now(self.connection.filesystem());
        let reply_bytes = reply.length();
        let (error, sent) = match answer {
            Answer::Error(errno) => (-errno.raw_os_error(), 0),
            // Requests without an answer arrive on the device; a ring entry always needs one.
            Answer::Silent => (0, 0),
            Answer::Reply => (0, reply_bytes),
        };
        let out = OutHeader {
            len: (size_of::<OutHeader>() + sent) as u32,
            error,
            unique: to.unique,
        };
        header.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
        header.entry.payload_size = sent as u32;
        let commit_id = header.entry.commit_id;
        self.ring.commit(number, commit_id);
        let from = (opcode, to.unique);
        timing.report(self.connection.filesystem(), from, answered, sent);
        let (cpu, run_ns) = (timing.cpu(), timing.run_ns());
        let queue = Some(queue);
        self.counters.add(&Record {
            opcode,
            failed: answer.is_failure(),
            reply_bytes: sent,
            queue,
            cpu,
            run_ns,
        });
    }

    fn end(&self) -> Ready {
        self.connection.end();
        Ready::Closed
    }

    /// Serves what the ring holds. A thread ends before its mount only when its CPU went offline;
    /// nothing new comes to this queue then, but a request may be under way.
    fn finish(&mut self) {
        for _ in 0..LAST_ROUNDS {
            if self.ring.poll().is_err() {
                return;
            }
            let mut served = false;
            while let Some(event) = self.ring.next_event() {
                if let Event::Request(number) = event {
                    self.serve_entry(number);
                    served = true;
                }
            }
            if !served {
                return;
            }
        }
    }
}

impl Drop for RingChannel {
    fn drop(&mut self) {
        if let Some(number) = self.next.take() {
            self.serve_entry(number);
        }
        if !self.connection.ended() {
            self.finish();
        }
    }
}

impl AsFd for RingChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
