//! CLOCK_MONOTONIC, the clock of scheduler traces recorded with "mono", and local time.

use std::mem::MaybeUninit;

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Seconds by which local time (TZ, /etc/localtime) is ahead of UTC at `seconds` since 1970; 0 for
/// a year that the C library cannot express.
pub fn utc_offset(seconds: i64) -> i64 {
    let mut parts = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the call, which keeps neither; a `tm` of zeros is valid,
    // so it is initialized whether or not the call succeeds.
    let parts = unsafe {
        libc::localtime_r(&seconds, parts.as_mut_ptr());
        parts.assume_init()
    };
    parts.tm_gmtoff
}
