//! CLOCK_MONOTONIC, the clock of scheduler traces recorded with "mono".

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec, which the call only writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::now_ns;

    #[test]
    fn time_advances() {
        let before = now_ns();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(now_ns() - before >= 1_000_000);
    }
}
