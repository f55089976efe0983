//! The channel over io_uring: requests of one CPU's queue, or of all queues.
//!
//! The kernel puts a request into the queue of the CPU that asks. Two kinds of channels serve:
//!
//! * the channel of a CPU, whose thread is pinned there. The kernel takes the entry that was
//!   returned last, so these are used as long as one is free;
//! * the overflow channel, with an entry or two in the queue of **every possible** CPU. It makes
//!   the rings complete, without which the kernel would let every request wait; it takes what a
//!   busy CPU's entries cannot, where several wait with the help of idle CPUs; and it stands in for
//!   CPUs whose thread has not come yet or has gone, so that every queue always has a thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use sys::eventfd::EventFd;
use sys::fuse_ring::{DisabledRing, Event, FuseRing, Message, PreparedRing};
use sys::pi_mutex::PiMutex;
use zerocopy::{FromBytes, IntoBytes};

use crate::back_off::BackOff;
use crate::connection::Connection;
use crate::counters::{Counters, Record};
use crate::dispatch::{Answer, answer};
use crate::fail_points;
use crate::interrupts;
use crate::reply::Reply;
use crate::request::Request;
use crate::rings::{ENTRIES, overflow_entries, possible_cpus};
use crate::state::{Ready, State};
use crate::timing::Timing;
use crate::wire::{InHeader, MIN_READ_BUFFER, OutHeader, RingHeader};

/// Most idle CPUs that help with a burst.
const MOST_HELPERS: usize = 16;

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
    back_off: BackOff,
    /// A burst of requests is served by idle CPUs too: the overflow channel, which takes those of
    /// all CPUs.
    spreads: bool,
}

/// A channel whose ring is ready but for its registration.
pub(crate) struct PreparedChannel {
    connection: Arc<Connection>,
    ring: PreparedRing,
    waker: Arc<EventFd>,
    spreads: bool,
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
            None => {
                let possible = possible_cpus()?;
                let entries = overflow_entries(possible.into());
                (0..possible).map(|queue| (queue, entries)).collect()
            }
        };
        let waker = Arc::new(EventFd::new()?);
        fail_points::check("memory")?;
        let (device, payload) = (connection.device(), connection.ring_payload());
        let ring = PreparedRing::new(ring, device, waker.as_fd(), &queues, payload)?;
        Ok(Self {
            connection: Arc::clone(connection),
            ring,
            waker,
            spreads: cpu.is_none(),
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
            back_off: BackOff::new(),
            connection: self.connection,
            ring,
            waker: self.waker,
            next: None,
            rest: Vec::new(),
            spreads: self.spreads,
        })
    }
}

impl RingChannel {
    pub(crate) fn waker(&self) -> &Arc<EventFd> {
        &self.waker
    }

    /// Submits the last reply, which [`wait`](Self::wait) would do otherwise.
    pub(crate) fn flush(&mut self) {
        // A failure comes again in `wait`.
        let _ = self.ring.flush();
    }

    /// Submits the last reply and sleeps for the next request, with one system call.
    pub(crate) fn wait(&mut self) -> Ready {
        let entered = fail_points::check_now("enter").map_err(io::Error::from);
        match entered.and_then(|()| self.ring.wait()) {
            Ok(()) => self.back_off.end(),
            // What it did not submit it submits the next time.
            Err(error) if self.passes(&error) => return Ready::Woken,
            Err(_) => return self.end(),
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

    /// Answers the request that `wait` found; in the overflow channel those that wait behind it
    /// too, where idle CPUs help.
    pub(crate) fn serve(&mut self) -> State {
        let Some(first) = self.next.take() else {
            return State::Nothing;
        };
        let helpers = match self.spreads && self.ring.has_request() {
            true => self.connection.filesystem().idle_helpers(MOST_HELPERS),
            false => 0,
        };
        match helpers {
            0 => self.serve_entry(first),
            helpers => self.serve_burst(first, helpers),
        }
        State::Served
    }

    fn serve_entry(&mut self, number: usize) {
        let message = self.ring.message(number);
        let answered = answer_message(&self.connection, message, &mut self.rest);
        self.commit(&answered);
    }

    /// Answers this request and as many of those behind it as there are helpers.
    fn serve_burst(&mut self, first: usize, helpers: usize) {
        let mut numbers = self.ring.take_requests(helpers);
        numbers.push(first);
        let answered = answer_all(&self.connection, self.ring.messages(&numbers));
        answered.iter().for_each(|answered| self.commit(answered));
    }

    /// Has a reply submitted, by the next [`wait`](Self::wait) or [`flush`](Self::flush).
    fn commit(&mut self, (number, commit_id, record): &Answered) {
        self.ring.commit(*number, *commit_id);
        self.counters.add(record);
    }

    /// Sleeps after an error that passes.
    fn passes(&mut self, error: &io::Error) -> bool {
        let errno = Errno::from_io_error(error);
        errno.is_some_and(|errno| self.back_off.passes(errno))
    }

    fn end(&self) -> Ready {
        self.connection.end();
        Ready::Closed
    }

    /// Serves what the ring holds. A thread ends before its mount only when its CPU went offline;
    /// nothing new comes to this queue then, but a request may be under way.
    fn finish(&mut self) {
        for _ in 0..LAST_ROUNDS {
            match self.ring.poll() {
                Err(error) if self.passes(&error) => continue,
                Err(_) => return,
                Ok(()) => {}
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

/// Entry, commit id and record of a request that was answered.
type Answered = (usize, u64, Record);

/// Answers one request into its entry. On any thread.
fn answer_message(connection: &Connection, message: Message<'_>, rest: &mut Vec<u8>) -> Answered {
    let timing = Timing::start();
    let Message {
        number,
        queue,
        header,
        payload,
    } = message;
    let Ok(header) = RingHeader::mut_from_bytes(header) else {
        unreachable!("the header has its size and begins on a page")
    };
    let to =
        InHeader::read_from_prefix(&header.in_out).map_or_else(|_| InHeader::default(), |(h, _)| h);
    let length = (header.entry.payload_size as usize).min(payload.len());
    rest.clear();
    // Writes are refused unread; no name is longer than this.
    rest.extend_from_slice(&payload[..length.min(MIN_READ_BUFFER)]);
    let mut reply = Reply::new(payload);
    interrupts::begin(connection.interrupts(), &to);
    let (opcode, answer) = match Request::from_ring(to, &header.fixed, rest) {
        Ok(request) => (
            request.opcode,
            answer(connection.filesystem(), &request, &mut reply),
        ),
        Err(_) => (None, Answer::Error(Errno::INVAL)),
    };
    interrupts::end();
    let answered = Timing::now(connection.filesystem());
    let (error, sent) = match answer {
        Answer::Error(errno) => (-errno.raw_os_error(), 0),
        // Requests without an answer arrive on the device; a ring entry always needs one.
        Answer::Silent => (0, 0),
        Answer::Reply => (0, reply.length()),
    };
    let out = OutHeader {
        len: (size_of::<OutHeader>() + sent) as u32,
        error,
        unique: to.unique,
    };
    header.in_out[..size_of::<OutHeader>()].copy_from_slice(out.as_bytes());
    header.entry.payload_size = sent as u32;
    let from = (opcode, to.unique);
    timing.report(connection.filesystem(), from, answered, sent);
    let record = Record {
        opcode,
        failed: answer.is_failure(),
        reply_bytes: sent,
        queue: Some(queue),
        cpu: timing.cpu(),
        run_ns: timing.run_ns(),
    };
    (number, header.entry.commit_id, record)
}

/// Answers several requests at once: this thread and those of idle CPUs take one after the other.
fn answer_all(connection: &Connection, messages: Vec<Message<'_>>) -> Vec<Answered> {
    // One of them is this thread's.
    let helpers = messages.len().saturating_sub(1);
    let (left, answered) = (PiMutex::new(messages), PiMutex::new(Vec::new()));
    let take = || left.lock().pop();
    let work = || {
        let mut rest = Vec::new();
        while let Some(message) = take() {
            let outcome = answer_message(connection, message, &mut rest);
            answered.lock().push(outcome);
        }
    };
    connection.filesystem().spread(helpers, &work);
    // Whatever the filesystem did with it.
    work();
    answered.into_inner()
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
