//! The order in which the kernel wakes the threads that wait for `/dev/fuse`.
//!
//! A request wakes the first waiter that is asleep, in the order of registration (EPOLLEXCLUSIVE).
//! By default one thread takes nearly all requests of a slow reader, whatever CPU that reader runs
//! on, and each request and each reply then wakes another CPU. So the thread of the reader's CPU is
//! put first: all waiters registered before it are registered again, which moves them to the end.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use sys::pi_mutex::PiMutex;

/// Marks events of the device in each epoll set.
pub(crate) const DEVICE: u64 = 0;

/// No CPU is first yet.
const NONE: usize = usize::MAX;

/// After each reordering, threads stop following readers for this many times as long as it took, so
/// that following uses at most a tenth of a CPU. Without the pause, two readers on different CPUs
/// would cause a reordering for each request. With two waiters the pause is 50 us; with 128, half
/// of which change places, a millisecond.
const PAUSE: u64 = 10;
/// The longest pause. Without this limit, a thread that was preempted during the reordering would
/// pause too long.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// The descriptors of one waiting thread.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The CPU the thread is pinned to.
    pub(crate) cpu: Option<usize>,
    pub(crate) device: OwnedFd,
    pub(crate) epoll: OwnedFd,
}

impl Waiter {
    /// Registers this waiter with the device, after all threads that already wait.
    pub(crate) fn register(&self) -> Result<(), Errno> {
        // Exclusive: one request wakes one thread.
        let events = EventFlags::IN | EventFlags::EXCLUSIVE;
        let mark = EventData::new_u64(DEVICE);
        epoll::add(&self.epoll, &self.device, mark, events)
    }

    /// Moves this waiter after all others. A request that arrives in between is not missed, because
    /// registering a waiter checks the device.
    fn move_to_end(&self) -> Result<(), Errno> {
        epoll::delete(&self.epoll, &self.device)?;
        self.register()
    }
}

/// All waiters of one mount.
#[derive(Debug)]
pub(crate) struct WaitOrder {
    /// Atomic. The CPU whose waiter is first, if it was put there.
    first: AtomicUsize,
    /// Atomic. Set while a thread determines where its reader runs, and reorders the waiters.
    following: AtomicBool,
    /// Atomic. Earliest time, in ns, at which a thread may follow its reader again.
    next_ns: AtomicU64,
    /// Atomic. Number of waiters. With only one, its thread takes no samples, because no other
    /// thread could answer.
    count: AtomicUsize,
    /// Guarded by its own lock. The waiters in the kernel's order.
    waiters: PiMutex<Vec<Arc<Waiter>>>,
}

impl WaitOrder {
    pub(crate) fn new() -> Self {
        Self {
            first: AtomicUsize::new(NONE),
            following: AtomicBool::new(false),
            next_ns: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            waiters: PiMutex::default(),
        }
    }

    /// Registers a waiter as the last one.
    pub(crate) fn add(&self, waiter: &Arc<Waiter>) -> Result<(), Errno> {
        let mut waiters = self.waiters.lock();
        waiter.register()?;
        waiters.push(Arc::clone(waiter));
        self.count.store(waiters.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Whether the caller may determine at `now_ns` where its reader runs, and put that CPU's
    /// waiter first; call [`Self::end_following`] afterwards.
    pub(crate) fn begin_following(&self, now_ns: u64) -> bool {
        self.count.load(Ordering::Relaxed) > 1
            && self.next_ns.load(Ordering::Relaxed) <= now_ns
            && !self.following.load(Ordering::Relaxed)
            && !self.following.swap(true, Ordering::Acquire)
    }

    /// Ends, at `now_ns`, the work begun with [`Self::begin_following`] at `began_ns`.
    pub(crate) fn end_following(&self, began_ns: u64, now_ns: u64) {
        let pause = now_ns.saturating_sub(began_ns).saturating_mul(PAUSE);
        let pause = pause.min(LONGEST_PAUSE.as_nanos() as u64);
        self.next_ns.store(now_ns + pause, Ordering::Relaxed);
        self.following.store(false, Ordering::Release);
    }

    /// Forgets a waiter whose thread ends.
    pub(crate) fn remove(&self, waiter: &Arc<Waiter>) {
        let mut waiters = self.waiters.lock();
        waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        self.count.store(waiters.len(), Ordering::Relaxed);
        self.first.store(NONE, Ordering::Relaxed);
    }

    /// Makes the waiter of `cpu` the first to be woken. Nothing changes if this waiter is already
    /// first, or if `cpu` has no waiter.
    pub(crate) fn put_first(&self, cpu: usize) {
        if self.first.load(Ordering::Relaxed) == cpu {
            return;
        }
        let mut waiters = self.waiters.lock();
        let Some(index) = waiters.iter().position(|waiter| waiter.cpu == Some(cpu)) else {
            return;
        };
        waiters.rotate_left(index);
        let moved = waiters.len() - index;
        // Registering fails only for lack of memory. The waiter's thread still serves after other
        // wake-ups, and the other threads serve the device.
        for waiter in &waiters[moved..] {
            let _ = waiter.move_to_end();
        }
        self.first.store(cpu, Ordering::Relaxed);
    }

    /// The device descriptors of all waiters.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let waiters = self.waiters.lock();
        let devices = waiters.iter().map(|waiter| waiter.device.as_raw_fd());
        devices.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll::CreateFlags;
    use sys::eventfd::EventFd;

    /// A waiter on an eventfd instead of the device: the order of exclusive waiters is the same in
    /// every wait queue.
    fn waiter(device: &EventFd, cpu: usize) -> Arc<Waiter> {
        use std::os::fd::AsFd;
        Arc::new(Waiter {
            cpu: Some(cpu),
            device: device.as_fd().try_clone_to_owned().unwrap(),
            epoll: epoll::create(CreateFlags::CLOEXEC).unwrap(),
        })
    }

    fn cpus(order: &WaitOrder) -> Vec<Option<usize>> {
        order
            .waiters
            .lock()
            .iter()
            .map(|waiter| waiter.cpu)
            .collect()
    }

    #[test]
    fn the_chosen_waiter_is_first_and_the_others_keep_their_order() {
        let (device, order) = (EventFd::new().unwrap(), WaitOrder::new());
        let waiters: Vec<_> = (0..4).map(|cpu| waiter(&device, cpu)).collect();
        waiters.iter().for_each(|waiter| order.add(waiter).unwrap());
        order.put_first(2);
        assert_eq!(cpus(&order), [Some(2), Some(3), Some(0), Some(1)]);
        order.put_first(9);
        assert_eq!(cpus(&order), [Some(2), Some(3), Some(0), Some(1)]);
        order.remove(&waiters[3]);
        order.put_first(0);
        assert_eq!(cpus(&order), [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn one_thread_of_several_follows_its_reader_at_a_time() {
        let (device, order) = (EventFd::new().unwrap(), WaitOrder::new());
        order.add(&waiter(&device, 0)).unwrap();
        assert!(!order.begin_following(0), "alone");
        order.add(&waiter(&device, 1)).unwrap();
        assert!(order.begin_following(0));
        assert!(!order.begin_following(0), "another one does");
        order.end_following(0, 0);
        assert!(order.begin_following(0));
    }

    #[test]
    fn what_takes_long_pauses_for_longer_within_a_bound() {
        let (device, order) = (EventFd::new().unwrap(), WaitOrder::new());
        (0..2).for_each(|cpu| order.add(&waiter(&device, cpu)).unwrap());
        // The pause after following that took this long.
        let next = |took: u64| {
            order.next_ns.store(0, Ordering::Relaxed);
            assert!(order.begin_following(1000));
            order.end_following(1000, 1000 + took);
            let next = order.next_ns.load(Ordering::Relaxed);
            assert!(!order.begin_following(next - 1));
            assert!(order.begin_following(next));
            order.end_following(next, next);
            next - (1000 + took)
        };
        assert_eq!(next(5_000), 50_000);
        assert_eq!(next(80_000), 800_000);
        assert_eq!(next(30_000_000), 1_000_000, "it was preempted");
    }

    #[test]
    fn the_kernel_wakes_the_waiter_that_was_put_first() {
        let (device, order) = (EventFd::new().unwrap(), WaitOrder::new());
        let waiters: Vec<_> = (0..3).map(|cpu| waiter(&device, cpu)).collect();
        waiters.iter().for_each(|waiter| order.add(waiter).unwrap());
        for cpu in [1, 2, 0, 2, 1] {
            order.put_first(cpu);
            let (woken, which) = std::sync::mpsc::channel();
            let (started, threads) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                for waiter in &waiters {
                    let (woken, started, device) = (woken.clone(), started.clone(), &device);
                    scope.spawn(move || {
                        let none = epoll::Event {
                            flags: EventFlags::empty(),
                            data: EventData::new_u64(1),
                        };
                        started.send(rustix::thread::gettid()).unwrap();
                        epoll::wait(&waiter.epoll, &mut [none; 1][..], None).unwrap();
                        woken.send(waiter.cpu).unwrap();
                        // A second event ends the sleep of the next waiter.
                        device.wake();
                    });
                }
                for thread in threads.iter().take(waiters.len()) {
                    until_asleep(thread.as_raw_nonzero().get());
                }
                device.wake();
                assert_eq!(which.recv().unwrap(), Some(cpu));
            });
            device.clear();
        }
    }

    fn until_asleep(tid: i32) {
        let stat = || std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        while !stat().rsplit(") ").next().unwrap().starts_with('S') {
            std::thread::yield_now();
        }
    }
}
