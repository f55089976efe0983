//! The channel over io_uring: requests of one CPU's queue, or of all queues.
//!
//! The kernel puts a request into the queue of the requesting CPU. Two kinds of channels serve:
//!
//! * the channel of a CPU, whose thread is pinned there. The kernel takes the entry that was
//!   returned last; `entry_order.rs` makes sure that this entry is the channel's own;
//! * the overflow channel, with an entry in the queue of **every possible** CPU. Its entries
//!   complete the rings: without them the kernel would make every request wait. The overflow
//!   channel takes requests that arrive while a CPU's own entry is in use, and stands in for CPUs
//!   whose thread has not started yet or is gone, so that every queue always has a thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use sys::eventfd::EventFd;
use sys::fuse_ring::{DisabledRing, Event, FuseRing, PreparedRing};

use crate::back_off::BackOff;
use crate::channel::{Channel, Ready, State};
use crate::connection::Connection;
use crate::counters::Counters;
use crate::entry_order::{Queue, Turns};
use crate::fail_points;
use crate::ring_message::{Answered, answer_message, is_sent_to_self};
use crate::rings::{ENTRIES, Entries, Rings};

/// Maximum number of rounds of serving remaining requests before a ring closes, in case it never
/// becomes idle.
const LAST_ROUNDS: usize = 1000;

/// The ring of one thread.
pub(crate) struct RingChannel {
    connection: Arc<Connection>,
    ring: FuseRing,
    waker: Arc<EventFd>,
    /// Entry of the request that `wait` found.
    next: Option<usize>,
    /// Names and values of the request, copied because the reply overwrites their buffer.
    rest: Vec<u8>,
    counters: Arc<Counters>,
    back_off: BackOff,
    part: Part,
}

/// The queues that a channel serves.
#[derive(Debug)]
enum Part {
    /// The queue of a CPU.
    Cpu(u16),
    /// All queues.
    Overflow(Turns),
}

/// A channel whose ring is ready except for its registration.
pub(crate) struct PreparedChannel {
    connection: Arc<Connection>,
    ring: PreparedRing,
    waker: Arc<EventFd>,
    cpu: Option<u16>,
}

impl PreparedChannel {
    /// Serves all queues.
    pub(crate) fn overflow(connection: &Arc<Connection>, rings: &Rings) -> io::Result<Self> {
        let (ring, entries) = rings.take_overflow()?;
        Self::new(connection, ring, None, &entries)
    }

    /// Serves the queue of a CPU.
    pub(crate) fn of_cpu(
        connection: &Arc<Connection>,
        rings: &Rings,
        cpu: usize,
    ) -> io::Result<Self> {
        let number = u16::try_from(cpu).map_err(|_| Errno::RANGE)?;
        let ring = rings.take_cpu(cpu)?;
        Self::new(connection, ring, Some(number), &[(number, ENTRIES)])
    }

    fn new(
        connection: &Arc<Connection>,
        ring: DisabledRing,
        cpu: Option<u16>,
        entries: &[Entries],
    ) -> io::Result<Self> {
        let waker = Arc::new(EventFd::new()?);
        fail_points::check("memory")?;
        let (device, payload) = (connection.device.as_fd(), connection.ring_payload());
        let ring = PreparedRing::new(ring, device, waker.as_fd(), entries, payload)?;
        Ok(Self {
            connection: Arc::clone(connection),
            ring,
            waker,
            cpu,
        })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.ring.as_fd().as_raw_fd()
    }

    /// Registers with the kernel, for the calling thread.
    pub(crate) fn start(self) -> io::Result<RingChannel> {
        let ring = self.ring.start()?;
        let part = self.cpu.map_or(Part::Overflow(Turns::default()), Part::Cpu);
        if let Part::Cpu(cpu) = part
            && let Some(queue) = self.connection.entry_order.queue(cpu)
        {
            queue.set_served(true);
        }
        Ok(RingChannel {
            counters: self.connection.new_counters(true),
            back_off: BackOff::new(),
            connection: self.connection,
            ring,
            waker: self.waker,
            next: None,
            rest: Vec::new(),
            part,
        })
    }
}

impl Channel for RingChannel {
    fn waker(&self) -> Arc<EventFd> {
        Arc::clone(&self.waker)
    }

    /// Submits the last reply now, instead of in [`wait`](Self::wait), because the thread does
    /// something else first.
    fn flush(&mut self) {
        self.own_queue().inspect(|queue| queue.begin());
        // If this fails, the next `wait` meets the error and handles it.
        let _ = self.ring.flush();
    }

    /// Submits the last reply and sleeps until the next request, with one system call.
    fn wait(&mut self) -> Ready {
        self.own_queue().inspect(|queue| queue.end());
        let entered = fail_points::check_now("enter").map_err(io::Error::from);
        match entered.and_then(|()| self.ring.wait()) {
            Ok(()) => self.back_off.end(),
            // The next wait submits what this one did not.
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

    /// Answers the request that `wait` found.
    fn serve(&mut self) -> State {
        let Some(first) = self.next.take() else {
            return State::Nothing;
        };
        match self.part {
            Part::Cpu(_) => self.serve_own(first),
            Part::Overflow(_) => self.serve_entry(first),
        }
        State::Served
    }
}

impl RingChannel {
    /// Serves a request of this thread's CPU, or the request that takes the thread's entry out of
    /// the queue.
    fn serve_own(&mut self, first: usize) {
        let is_turn = is_sent_to_self(&self.ring.message(first));
        if let Some(queue) = self.own_queue() {
            match is_turn {
                true => queue.taken(),
                false => queue.begin(),
            }
        }
        self.serve_entry(first);
    }

    /// The queue of this thread's CPU.
    fn own_queue(&self) -> Option<&Queue> {
        match self.part {
            Part::Cpu(cpu) => self.connection.entry_order.queue(cpu),
            Part::Overflow(_) => None,
        }
    }

    fn serve_entry(&mut self, number: usize) {
        if let Part::Overflow(turns) = &mut self.part {
            turns.take(&self.connection.entry_order, self.ring.queue(number));
        }
        let message = self.ring.message(number);
        let answered = answer_message(&self.connection, message, &mut self.rest);
        match self.part {
            Part::Cpu(_) => commit(&mut self.ring, &self.counters, &answered),
            Part::Overflow(_) => self.return_in_turn(&answered),
        }
        let queue = self.ring.queue(answered.number);
        if let (Some(file), Some(queue)) = (answered.file, self.connection.entry_order.queue(queue))
        {
            queue.remember(file);
        }
    }

    /// Returns an entry of the overflow channel. If the worker should have had the request, the
    /// worker's entry is taken out of the queue first, so that the worker returns it last.
    fn return_in_turn(&mut self, answered: &Answered) {
        let order = &self.connection.entry_order;
        let queue = self.ring.queue(answered.number);
        let turn = match &mut self.part {
            Part::Overflow(turns) if !answered.is_sent_to_self() => {
                turns.begin(order, queue, answered.record.cpu)
            }
            _ => None,
        };
        commit(&mut self.ring, &self.counters, answered);
        if let (Some(turn), Part::Overflow(turns)) = (turn, &mut self.part) {
            // If this fails, the next `wait` meets the error and handles it.
            let _ = self.ring.flush();
            turns.end(&turn);
        }
    }

    /// Sleeps after a temporary error; returns false for any other error.
    fn passes(&mut self, error: &io::Error) -> bool {
        let errno = Errno::from_io_error(error);
        errno.is_some_and(|errno| self.back_off.passes(errno))
    }

    fn end(&self) -> Ready {
        self.connection.end();
        Ready::Closed
    }

    /// Serves the requests left in the ring. A thread ends before its mount only if its CPU goes
    /// offline; in that case no new request comes to this queue, but one may be in progress.
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

/// Queues a reply, which the ring's next wait or flush submits.
fn commit(ring: &mut FuseRing, counters: &Counters, answered: &Answered) {
    ring.commit(answered.number, answered.commit_id);
    // Requests that the mount sent to itself are not counted.
    if !answered.is_sent_to_self() {
        counters.add(&answered.record);
    }
}

impl Drop for RingChannel {
    fn drop(&mut self) {
        if let Some(number) = self.next.take() {
            self.serve_entry(number);
        }
        self.own_queue().inspect(|queue| queue.set_served(false));
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
