//! CLOCK_MONOTONIC, the clock of scheduler traces recorded with "mono", local time, and the time
//! that a thread has used.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Seconds by which local time (TZ, /etc/localtime) is ahead of UTC at `seconds` since 1970; 0 for
/// a year that the C library cannot express.
pub fn utc_offset(seconds: i64) -> i64 {
    let mut parts = libc::tm {
        tm_sec: 0,
        tm_min: 0,
        tm_hour: 0,
        tm_mday: 0,
        tm_mon: 0,
        tm_year: 0,
        tm_wday: 0,
        tm_yday: 0,
        tm_isdst: 0,
        tm_gmtoff: 0,
        tm_zone: std::ptr::null(),
    };
    // SAFETY: both pointers are valid for the call, which keeps neither.
    unsafe { libc::localtime_r(&seconds, &mut parts) };
    parts.tm_gmtoff
}

/// The time that one thread has spent on CPUs, for the other threads of its process.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// Of the calling thread; `None` if it has none.
    pub fn of_this_thread() -> Option<Self> {
        let mut id = 0;
        // SAFETY: it has no conditions.
        let this = unsafe { libc::pthread_self() };
        // SAFETY: the thread is the calling one, and the pointer is valid for the call.
        let error = unsafe { libc::pthread_getcpuclockid(this, &raw mut id) };
        (error == 0).then_some(Self(id))
    }

    /// `None` when the thread has ended.
    pub fn used(self) -> Option<Duration> {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the pointer is valid for the call, which keeps it not. The kernel refuses the
        // clock of a thread that is gone.
        let refused = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        (refused == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_clock_counts_what_it_uses_and_ends_with_it() {
        let (clocks, clock) = std::sync::mpsc::channel();
        let busy = std::thread::spawn(move || {
            clocks.send(ThreadClock::of_this_thread().unwrap()).unwrap();
            let own = ThreadClock::of_this_thread().unwrap();
            while own.used().unwrap() < Duration::from_millis(20) {}
        });
        let clock = clock.recv().unwrap();
        while clock
            .used()
            .is_some_and(|used| used < Duration::from_millis(10))
        {
            std::thread::yield_now();
        }
        busy.join().unwrap();
        // A thread is gone a moment after it was joined.
        while clock.used().is_some() {
            std::thread::yield_now();
        }
    }
}
