//! The largest request that the kernel sends.

use std::ops::RangeInclusive;

use crate::options::READ_AHEAD_KB;

/// Smallest and largest request size that is chosen, in KiB. The largest is the kernel's default
/// limit for pages of 4 KiB (`fs.fuse.max_pages_limit`).
const REQUEST_KIB: RangeInclusive<u32> = 256..=1024;

/// Bytes in the largest request.
///
/// Half of the read-ahead window, so that two threads serve a window and a reader waits for only
/// half of it; or the whole window, if idle workers help with one request:
/// * over io_uring, where the second of two simultaneous requests goes to the overflow queue, which
///   serves it on another CPU;
/// * with slow codecs, because one of two requests would wait while the other decodes the pcluster
///   at their border.
pub(crate) fn request_bytes(read_ahead_kb: Option<u32>, whole: bool) -> usize {
    let window = read_ahead_kb.unwrap_or(READ_AHEAD_KB);
    let request = if whole { window } else { window / 2 };
    (request.clamp(*REQUEST_KIB.start(), *REQUEST_KIB.end()) as usize) << 10
}

#[cfg(test)]
mod tests {
    use super::request_bytes;

    #[test]
    fn a_window_is_one_request_or_two_within_bounds() {
        let half = |kib| request_bytes(Some(kib), false) >> 10;
        assert_eq!([half(0), half(128), half(512)], [256; 3]);
        assert_eq!([half(1024), half(2048), half(u32::MAX)], [512, 1024, 1024]);
        let whole = |kib| request_bytes(Some(kib), true) >> 10;
        assert_eq!([whole(0), whole(512), whole(1024)], [256, 512, 1024]);
        assert_eq!(
            [request_bytes(None, false), request_bytes(None, true)],
            [256 << 10, 512 << 10]
        );
    }
}
