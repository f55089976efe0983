//! The oracles' memory meter: the peak additional memory that the process used for one input.

use std::fs;
use std::sync::{Mutex, PoisonError};

/// KiB that an input may take. This is several times the promise for reading
/// (docs/format.md#bounds): a sanitizer keeps freed memory for a while, and other tests run at the
/// same time.
const MOST_KIB: u64 = 384 << 10;

/// Allows one measurement at a time: the peak is that of the whole process.
static METER: Mutex<()> = Mutex::new(());

/// Runs an oracle and fails if it takes too much memory. If the kernel cannot reset the peak, the
/// oracle runs unmeasured.
pub(crate) fn metered(oracle: impl FnOnce()) {
    let _only = METER.lock().unwrap_or_else(PoisonError::into_inner);
    // Writing 5 resets the peak to the current value.
    let before = fs::write("/proc/self/clear_refs", "5")
        .ok()
        .and_then(|()| status("VmRSS:"));
    oracle();
    if let Some((before, peak)) = before.zip(status("VmHWM:")) {
        let taken = peak.saturating_sub(before);
        assert!(taken <= MOST_KIB, "{taken} KiB for one input");
    }
}

/// The value of this line of `/proc/self/status`, in KiB.
fn status(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(kib: u64) {
        metered(|| drop(std::hint::black_box(vec![1_u8; (kib << 10) as usize])));
    }

    #[test]
    fn an_oracle_fails_where_an_input_takes_too_much_memory() {
        if fs::write("/proc/self/clear_refs", "5").is_err() {
            println!("skipped: the kernel has no peak to reset");
            return;
        }
        take(MOST_KIB / 4);
        assert!(std::panic::catch_unwind(|| take(MOST_KIB + (16 << 10))).is_err());
        take(MOST_KIB / 4);
    }
}
