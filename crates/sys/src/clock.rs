//! CLOCK_MONOTONIC, the clock of scheduler traces recorded with "mono", and local time.

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Seconds by which local time (TZ, /etc/localtime) is ahead of UTC, `seconds` after the beginning
/// of 1970; 0 for a year that the C library cannot represent.
pub fn utc_offset(seconds: i64) -> i64 {
    // SAFETY: the structure holds plain numbers and a pointer, which may be null.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call, which keeps neither.
    unsafe { libc::localtime_r(&seconds, &mut parts) };
    parts.tm_gmtoff
}
