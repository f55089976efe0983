//! A condition variable for a [`PiMutex`](crate::pi_mutex::PiMutex).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::thread::futex::{self, Flags, Timespec};

use crate::pi_mutex::PiMutexGuard;

/// A condition variable. A wait may end spuriously.
#[derive(Debug, Default)]
pub struct PiCondvar {
    /// Counts notifications: a thread sleeps only if none has arrived since the thread released the
    /// mutex.
    changes: AtomicU32,
    /// Number of threads that sleep or are about to: if it is 0, a notification makes no system
    /// call.
    sleepers: AtomicU32,
}

impl PiCondvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Self {
            changes: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }

    /// Releases the mutex, waits to be notified, and locks the mutex again.
    pub fn wait<'m, T>(&self, guard: PiMutexGuard<'m, T>) -> PiMutexGuard<'m, T> {
        self.wait_for(guard, None)
    }

    /// Like [`wait`](Self::wait), but for at most `limit`.
    pub fn wait_timeout<'m, T>(
        &self,
        guard: PiMutexGuard<'m, T>,
        limit: Duration,
    ) -> PiMutexGuard<'m, T> {
        self.wait_for(guard, Some(limit))
    }

    fn wait_for<'m, T>(
        &self,
        guard: PiMutexGuard<'m, T>,
        limit: Option<Duration>,
    ) -> PiMutexGuard<'m, T> {
        let mutex = guard.mutex();
        // Under the lock: a thread that changes the value afterwards sees the sleeper.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.changes.load(Ordering::SeqCst);
        drop(guard);
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // The result does not matter: the caller reads the value again in any case.
        let _ = futex::wait(&self.changes, Flags::PRIVATE, seen, limit.as_ref());
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        mutex.lock()
    }

    /// Ends the wait of one thread.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Ends the waits of all threads.
    pub fn notify_all(&self) {
        self.notify(i32::MAX as u32);
    }

    fn notify(&self, most: u32) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _ = futex::wake(&self.changes, Flags::PRIVATE, most);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::pi_mutex::PiMutex;

    #[test]
    fn no_notification_is_lost() {
        const ROUNDS: u32 = 20_000;
        let (turn, changed) = (PiMutex::new(0_u32), PiCondvar::new());
        let play = |parity| {
            for _ in 0..ROUNDS {
                let mut turn = turn.lock();
                while *turn % 2 != parity {
                    turn = changed.wait(turn);
                }
                *turn += 1;
                drop(turn);
                changed.notify_one();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| play(1));
            play(0);
        });
        assert_eq!(turn.into_inner(), 2 * ROUNDS);
    }

    #[test]
    fn all_are_woken() {
        let (open, changed) = (PiMutex::new(false), PiCondvar::new());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut open = open.lock();
                    while !*open {
                        open = changed.wait(open);
                    }
                });
            }
            *open.lock() = true;
            changed.notify_all();
        });
    }

    #[test]
    fn a_wait_ends_with_its_time() {
        let (mutex, changed) = (PiMutex::new(()), PiCondvar::new());
        let (begin, limit) = (Instant::now(), Duration::from_millis(20));
        let mut guard = mutex.lock();
        while begin.elapsed() < limit {
            guard = changed.wait_timeout(guard, limit);
        }
        assert!(mutex.try_lock().is_none(), "it is locked again");
        drop(guard);
        assert!(mutex.try_lock().is_some());
    }
}
