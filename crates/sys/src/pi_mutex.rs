//! A mutex whose holder runs at the priority of the most urgent thread that waits for it.
//!
//! The serving threads may be real-time while others that share their data are not. With a plain
//! mutex any thread of intermediate priority could keep the holder, and so the real-time thread,
//! from running. This mutex uses the priority inheritance of futex(2): FUTEX_LOCK_PI and
//! FUTEX_UNLOCK_PI.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{Flags, lock_pi, unlock_pi};

/// The word of a mutex that is not locked. Otherwise the word contains the holder's thread ID and,
/// if threads sleep, the kernel's mark for waiters.
const FREE: u32 = 0;

/// How many times to check the lock before sleeping, since locks are usually held for only a few
/// hundred instructions.
const SPINS: u32 = 100;

/// Pause between checks if the kernel has no priority inheritance (CONFIG_FUTEX_PI).
const PAUSE: Duration = Duration::from_micros(50);

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(FREE) };
}

/// A mutex with priority inheritance and without poisoning: a panic of its holder releases it.
#[derive(Default)]
pub struct PiMutex<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed only through a guard, and only one guard exists at a time, so
// sharing the mutex at most moves the value between threads.
unsafe impl<T: Send> Sync for PiMutex<T> {}

/// Access to the value; releases the mutex when dropped.
#[derive(Debug)]
#[must_use = "the mutex is released immediately"]
pub struct PiMutexGuard<'m, T> {
    mutex: &'m PiMutex<T>,
    /// Keeps the guard on its thread, because the thread that locked must unlock.
    _here: std::marker::PhantomData<*const ()>,
}

impl<T> PiMutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until the lock is free.
    ///
    /// # Panics
    /// If the calling thread already holds the lock.
    pub fn lock(&self) -> PiMutexGuard<'_, T> {
        let own = own_number();
        if !self.take(own) {
            self.lock_held(own);
        }
        PiMutexGuard {
            mutex: self,
            _here: std::marker::PhantomData,
        }
    }

    /// Locks the mutex if it is free.
    pub fn try_lock(&self) -> Option<PiMutexGuard<'_, T>> {
        self.take(own_number()).then_some(PiMutexGuard {
            mutex: self,
            _here: std::marker::PhantomData,
        })
    }

    /// Consumes the mutex and returns its value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    fn take(&self, own: u32) -> bool {
        self.word
            .compare_exchange(FREE, own, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn lock_held(&self, own: u32) {
        for _ in 0..SPINS {
            if self.word.load(Ordering::Relaxed) == FREE && self.take(own) {
                return;
            }
            std::hint::spin_loop();
        }
        loop {
            match lock_pi(&self.word, Flags::PRIVATE, None) {
                // The kernel has stored this thread's ID in the word.
                Ok(()) => break std::sync::atomic::fence(Ordering::Acquire),
                // AGAIN: the thread that held the lock has released it and is about to end.
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::DEADLK) => panic!("a thread locks a mutex that it already holds"),
                Err(_) if self.take(own) => break,
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn unlock(&self) {
        let own = own_number();
        let free = self
            .word
            .compare_exchange(own, FREE, Ordering::Release, Ordering::Relaxed);
        if free.is_err() {
            std::sync::atomic::fence(Ordering::Release);
            // Cannot fail: the word holds this thread's ID and the mark for waiters.
            let _ = unlock_pi(&self.word, Flags::PRIVATE);
        }
    }
}

impl<'m, T> PiMutexGuard<'m, T> {
    pub(crate) fn mutex(&self) -> &'m PiMutex<T> {
        self.mutex
    }
}

impl<T> Deref for PiMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for PiMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for PiMutexGuard<'_, T> {
    fn drop(&mut self) {
        self.mutex.unlock();
    }
}

impl<T> fmt::Debug for PiMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiMutex").finish_non_exhaustive()
    }
}

/// The thread ID of the calling thread.
fn own_number() -> u32 {
    match THREAD.get() {
        FREE => ask_number(),
        known => known,
    }
}

#[cold]
fn ask_number() -> u32 {
    // In a child process the surviving thread has a different ID.
    static CHILDREN_FORGET: Once = Once::new();
    extern "C" fn forget() {
        THREAD.set(FREE);
    }
    CHILDREN_FORGET.call_once(|| {
        // SAFETY: the function touches a value of its own thread that has no destructor. If there
        // is no memory to register it, a child keeps using its parent's ID.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forget)) };
    });
    let number = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    THREAD.set(number);
    number
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::sched::{Policy, set_policy};

    #[test]
    fn no_increment_of_many_threads_is_lost() {
        let sum = PiMutex::new(0_u64);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..20_000).for_each(|_| *sum.lock() += 1));
            }
        });
        assert_eq!(sum.into_inner(), 160_000);
    }

    #[test]
    fn a_panic_releases_it() {
        let mutex = PiMutex::new(1);
        let panicked = thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _guard = mutex.lock();
                panic!("as a test");
            });
            holder.join().is_err()
        });
        assert!(panicked);
        assert_eq!(*mutex.lock(), 1);
    }

    #[test]
    #[should_panic(expected = "already holds")]
    fn locking_twice_is_no_silent_hang() {
        let mutex = PiMutex::new(());
        let _guard = mutex.lock();
        drop(mutex.lock());
    }

    #[test]
    fn a_child_process_locks_with_its_own_number() {
        let mutex = PiMutex::new(());
        drop(mutex.lock());
        let (stdin, _end) = std::io::pipe().unwrap();
        let child = || {
            let _guard = mutex.lock();
            let own = std::process::id();
            i32::from(mutex.word.load(Ordering::Relaxed) != own)
        };
        let pid = crate::fork::fork_in_test(stdin.into(), &[], child).unwrap();
        assert_eq!(crate::fork::exit_status(pid), 0);
    }

    /// Reads field 18 of `/proc/self/task/TID/stat`: -2 for SCHED_FIFO 1, 20 for an ordinary
    /// thread.
    fn priority(thread: u32) -> i32 {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let fields = stat.rsplit(") ").next().unwrap();
        fields.split(' ').nth(15).unwrap().parse().unwrap()
    }

    #[test]
    fn the_holder_has_the_priority_of_the_thread_that_waits() {
        let mutex = &PiMutex::new(());
        thread::scope(|scope| {
            let guard = mutex.lock();
            let own = own_number();
            let before = priority(own);
            let (sender, asks) = channel();
            let waiter = scope.spawn(move || {
                sender.send(set_policy(0, Policy::Fifo(1)).is_ok()).unwrap();
                drop(mutex.lock());
            });
            if !asks.recv().unwrap() {
                println!("skipped: SCHED_FIFO is refused here");
                return drop(guard);
            }
            while priority(own) == before {
                thread::yield_now();
            }
            assert_eq!(priority(own), -2);
            drop(guard);
            assert_eq!(priority(own), before);
            waiter.join().unwrap();
        });
    }
}
