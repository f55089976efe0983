//! Controls which entry of a queue the kernel takes first.
//!
//! The kernel takes the entry that was returned last. A second request that arrives while the
//! worker of its CPU is busy gets an entry of the overflow channel, whose thread runs on another
//! CPU. If the worker then returned its entry before the overflow channel did, all single requests
//! would go to the overflow channel from then on.
//!
//! Therefore the overflow channel reverses the order when it serves a request that an idle worker
//! should have had: the worker's entry is taken out of the queue before the overflow channel
//! returns its own, and the worker returns its entry afterwards. An entry leaves the queue only
//! with a request, so a thread pinned to the worker's CPU (`turn_channel.rs`) creates one that no
//! program waits for: it asks for zero bytes of a file's cached content (FUSE_NOTIFY_RETRIEVE), and
//! the kernel puts the answer into the queue of the CPU on which the thread asks. The overflow
//! channel pins that thread before waking it: on the CPU of the overflow channel, which spins until
//! the entry is out, the thread would not run in time.
//!
//! The threads wait for each other with a time limit, so whatever one of them does, the others
//! continue; at worst the order is lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use sys::eventfd::EventFd;

use sys::clock::now_ns;

/// How long one thread waits for another. Waking a sleeping thread takes about 10 us, or 50 us in a
/// virtual machine, and two threads are woken.
const PATIENCE: Duration = Duration::from_micros(200);
/// After a reversal, the order is left alone for this many times as long as the reversal took.
const PAUSE: u64 = 10;

/// States of a turn: none is in progress;
const NONE: u8 = 0;
/// the overflow channel has requested one;
const ASKED: u8 = 1;
/// the worker's entry is being taken out of the queue;
const TAKING: u8 = 2;
/// the worker has its entry;
const TAKEN: u8 = 3;
/// the overflow channel has returned its own.
const RETURNED: u8 = 4;

/// The queues of one mount.
#[derive(Debug)]
pub(crate) struct EntryOrder {
    /// Fixed at creation.
    queues: Box<[Queue]>,
    /// Fixed at creation: wakes the thread that takes entries out.
    pub(crate) asked: Arc<EventFd>,
    /// Atomic: ID of the thread that takes entries out, 0 until it waits.
    thread: AtomicI32,
}

/// Shared by the worker of a CPU and the overflow channel. In separate cache lines, because the
/// worker writes to it at each request.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Queue {
    /// Atomic: whether the worker has an entry. Written by the worker.
    is_served: AtomicBool,
    /// Atomic: number of requests that the worker has begun. Written by the worker.
    begun: AtomicU32,
    /// Atomic: the value of `begun` when the worker last became idle. Written by the worker.
    ended: AtomicU32,
    /// Atomic: the state of the turn.
    turn: AtomicU8,
    /// Atomic: a regular file that the kernel knows; 0: none yet.
    file: AtomicU64,
}

/// A worker's entry that should be taken out.
pub(crate) struct Asked {
    pub(crate) cpu: usize,
    /// The file named by the request that takes the entry out.
    pub(crate) file: u64,
}

impl EntryOrder {
    /// Creates the state of `queues` queues.
    pub(crate) fn new(queues: u16) -> io::Result<Self> {
        Ok(Self {
            queues: (0..queues).map(|_| Queue::default()).collect(),
            asked: Arc::new(EventFd::new()?),
            thread: AtomicI32::new(0),
        })
    }

    pub(crate) fn queue(&self, number: u16) -> Option<&Queue> {
        self.queues.get(usize::from(number))
    }

    /// Makes the calling thread the one that takes entries out.
    pub(crate) fn serve_from_here(&self) {
        let thread = gettid().as_raw_nonzero().get();
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// Pins to a CPU the thread that takes entries out. If pinning fails, the request that the
    /// thread creates goes to another queue.
    fn pin(&self, cpu: usize) {
        let thread = Pid::from_raw(self.thread.load(Ordering::Relaxed));
        if thread.is_some() {
            let mut only = CpuSet::new();
            only.set(cpu);
            let _ = sched_setaffinity(thread, &only);
        }
    }

    /// The next entry to take out, or to [give up](Self::give_up); for the thread that takes
    /// entries out.
    pub(crate) fn take(&self) -> Option<Asked> {
        let mut queues = self.queues.iter().enumerate();
        let (cpu, queue) = queues.find(|(_, queue)| queue.change(ASKED, TAKING))?;
        Some(Asked {
            cpu,
            file: queue.file.load(Ordering::Relaxed),
        })
    }

    /// Cancels taking the entry out, because the kernel no longer knows the file.
    pub(crate) fn give_up(&self, cpu: usize) {
        self.queues[cpu].remember(0);
        self.queues[cpu].end_turn();
    }

    /// A regular file that the kernel knows, from this queue if possible, else from another.
    fn file(&self, queue: &Queue) -> Option<u64> {
        let all = std::iter::once(queue).chain(&self.queues);
        all.map(|queue| queue.file.load(Ordering::Relaxed))
            .find(|&file| file != 0)
    }
}

impl Queue {
    /// Sets whether the worker has an entry.
    pub(crate) fn set_served(&self, is_served: bool) {
        self.is_served.store(is_served, Ordering::Relaxed);
    }

    /// Notes that the worker begins to serve a request, or to do other work.
    pub(crate) fn begin(&self) {
        let begun = self.begun.load(Ordering::Relaxed);
        self.begun.store(begun.wrapping_add(1), Ordering::Relaxed);
    }

    /// Notes that the worker waits for the next request.
    pub(crate) fn end(&self) {
        let begun = self.begun.load(Ordering::Relaxed);
        self.ended.store(begun, Ordering::Relaxed);
    }

    /// How many requests the worker had begun when it became idle; `None` while it is busy, or if
    /// there is no worker.
    pub(crate) fn idle_since(&self) -> Option<u32> {
        let ended = self.ended.load(Ordering::Relaxed);
        let is_idle = self.begun.load(Ordering::Relaxed) == ended;
        (is_idle && self.is_served.load(Ordering::Relaxed)).then_some(ended)
    }

    /// Remembers a regular file that a reply has made known to the kernel; 0 forgets it.
    pub(crate) fn remember(&self, file: u64) {
        self.file.store(file, Ordering::Relaxed);
    }

    /// Asks for the worker's entry to be taken out, and waits until the worker has it or the time
    /// limit has passed.
    fn ask(&self, asked: &EventFd) {
        if self.change(NONE, ASKED) {
            asked.wake();
            self.wait_while(|turn| turn == ASKED || turn == TAKING);
            self.change(ASKED, NONE);
        }
    }

    /// Notes that the overflow channel has returned its entry.
    fn returned(&self) {
        if !self.change(TAKEN, RETURNED) {
            self.change(TAKING, NONE);
        }
    }

    /// Notes that the worker has its entry, and waits until the overflow channel has returned its
    /// own.
    pub(crate) fn taken(&self) {
        if self.change(TAKING, TAKEN) {
            self.wait_while(|turn| turn == TAKEN);
            self.end_turn();
        }
    }

    fn end_turn(&self) {
        self.turn.store(NONE, Ordering::Release);
    }

    fn change(&self, from: u8, to: u8) -> bool {
        let changed = self
            .turn
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        changed.is_ok()
    }

    fn wait_while(&self, goes_on: impl Fn(u8) -> bool) {
        let end = now_ns() + PATIENCE.as_nanos() as u64;
        while goes_on(self.turn.load(Ordering::Acquire)) && now_ns() < end {
            std::hint::spin_loop();
        }
    }
}

/// The overflow channel's part in turns, for one of its threads.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Number of requests that the worker had begun, if it was idle when this thread took its
    /// current request.
    idle: Option<u32>,
    /// Earliest time of the next turn, in ns.
    next_ns: u64,
}

/// A turn in progress.
#[derive(Debug)]
pub(crate) struct Turn<'o> {
    queue: &'o Queue,
    began_ns: u64,
}

impl Turns {
    /// Notes that the thread took a request from queue `number`.
    pub(crate) fn take(&mut self, order: &EntryOrder, number: u16) {
        self.idle = order.queue(number).and_then(Queue::idle_since);
    }

    /// Begins a turn if this thread, which runs on the CPU `here`, serves a request that the worker
    /// should have had. Call this before returning an entry of queue `number`, and
    /// [`end`](Self::end) once the kernel has the entry.
    pub(crate) fn begin<'o>(
        &mut self,
        order: &'o EntryOrder,
        number: u16,
        here: usize,
    ) -> Option<Turn<'o>> {
        let queue = order.queue(number)?;
        if !self.is_out_of_turn(queue, number.into(), here) {
            return None;
        }
        queue.remember(order.file(queue)?);
        let began_ns = now_ns();
        order.pin(number.into());
        queue.ask(&order.asked);
        Some(Turn { queue, began_ns })
    }

    pub(crate) fn end(&mut self, turn: &Turn<'_>) {
        turn.queue.returned();
        let now = now_ns();
        self.next_ns = now + PAUSE * (now - turn.began_ns);
    }

    /// Whether the worker has been idle since this thread took its request, so that the kernel
    /// would take the returned entry before the worker's.
    fn is_out_of_turn(&self, queue: &Queue, number: usize, here: usize) -> bool {
        let is_idle = self.idle.is_some() && self.idle == queue.idle_since();
        is_idle && here != number && now_ns() >= self.next_ns
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// One queue, whose worker has an entry.
    fn order() -> EntryOrder {
        let order = EntryOrder::new(1).unwrap();
        let queue = order.queue(0).unwrap();
        queue.set_served(true);
        queue.remember(7);
        order
    }

    /// The CPU on which the overflow channel's thread runs; the queue belongs to another CPU.
    const ELSEWHERE: usize = 1;

    #[test]
    fn a_worker_is_idle_between_requests_and_while_it_has_an_entry() {
        let order = EntryOrder::new(1).unwrap();
        let queue = order.queue(0).unwrap();
        assert_eq!(queue.idle_since(), None, "there is no worker");
        queue.set_served(true);
        assert_eq!(queue.idle_since(), Some(0));
        queue.begin();
        assert_eq!(queue.idle_since(), None);
        queue.end();
        assert_eq!(queue.idle_since(), Some(1));
        queue.end();
        assert_eq!(queue.idle_since(), Some(1));
        assert!(order.queue(1).is_none());
    }

    #[test]
    fn the_overflow_channel_returns_its_entry_between_the_two_steps_of_the_worker() {
        let (order, mut turns) = (order(), Turns::default());
        let queue = order.queue(0).unwrap();
        // Both threads wait with a time limit: if one of them does not run in time, they try again.
        let met = (0..1000).any(|_| {
            let returned = AtomicU8::new(0);
            thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    let end = now_ns() + 10 * PATIENCE.as_nanos() as u64;
                    while order.take().is_none_or(|asked| asked.file != 7) {
                        if now_ns() > end {
                            return false;
                        }
                    }
                    let before = returned.load(Ordering::Acquire);
                    queue.taken();
                    let after = returned.load(Ordering::Acquire);
                    before == 0 && after == 1
                });
                turns.next_ns = 0;
                turns.take(&order, 0);
                let turn = turns.begin(&order, 0, ELSEWHERE).unwrap();
                returned.store(1, Ordering::Release);
                turns.end(&turn);
                worker.join().unwrap()
            })
        });
        assert!(met);
    }

    #[test]
    fn a_worker_that_does_not_come_costs_a_moment_and_is_too_late_then() {
        let (order, mut turns) = (order(), Turns::default());
        turns.take(&order, 0);
        let turn = turns.begin(&order, 0, ELSEWHERE).unwrap();
        turns.end(&turn);
        assert!(order.take().is_none());
        let begins = |turns: &mut Turns, here| turns.begin(&order, 0, here).is_some();
        assert!(!begins(&mut turns, ELSEWHERE), "there is a pause");
        turns.next_ns = 0;
        assert!(
            !begins(&mut turns, 0),
            "it was served on the CPU that asked"
        );
        assert!(begins(&mut turns, ELSEWHERE));
        order.queue(0).unwrap().remember(0);
        turns.next_ns = 0;
        assert!(!begins(&mut turns, ELSEWHERE), "no file is known");
    }

    #[test]
    fn what_a_busy_worker_leaves_to_the_overflow_channel_is_no_reason_for_a_turn() {
        let (order, mut turns) = (order(), Turns::default());
        let queue = order.queue(0).unwrap();
        queue.begin();
        turns.take(&order, 0);
        queue.end();
        assert!(turns.begin(&order, 0, ELSEWHERE).is_none(), "it was busy");
        turns.take(&order, 0);
        queue.begin();
        assert!(turns.begin(&order, 0, ELSEWHERE).is_none(), "it is busy");
        queue.end();
        assert!(
            turns.begin(&order, 0, ELSEWHERE).is_none(),
            "it has served one"
        );
    }
}
