//! The largest request that the kernel sends.

use std::ops::RangeInclusive;

use crate::options::READ_AHEAD_KB;

/// Pages of the smallest and of the largest value chosen; more than the latter is not allowed by
/// default (`fs.fuse.max_pages_limit`).
const REQUEST_PAGES: RangeInclusive<u32> = 64..=256;

/// Pages of 4 KiB of the largest request.
///
/// Half of the read-ahead window, so that two threads serve it and a reader waits for half of it
/// only; or all of it, where idle workers help with one request:
/// * over io_uring, where the second of two simultaneous requests goes to the overflow queue, whose
///   entry is then the one the kernel takes next, so that further requests would be served on
///   another CPU;
/// * with slow codecs, where each request would wait for the pcluster at its border that the other
///   one decodes.
pub(super) fn request_pages(read_ahead_kb: Option<u32>, whole: bool) -> u16 {
    let window = read_ahead_kb.unwrap_or(READ_AHEAD_KB) / 4;
    let request = if whole { window } else { window / 2 };
    request.clamp(*REQUEST_PAGES.start(), *REQUEST_PAGES.end()) as u16
}

#[cfg(test)]
mod tests {
    use super::request_pages;

    #[test]
    fn a_window_is_one_request_or_two_within_bounds() {
        let half = |kib| request_pages(Some(kib), false);
        assert_eq!([half(0), half(128), half(512)], [64; 3]);
        assert_eq!([half(1024), half(2048), half(u32::MAX)], [128, 256, 256]);
        let whole = |kib| request_pages(Some(kib), true);
        assert_eq!([whole(0), whole(512), whole(1024)], [64, 128, 256]);
        assert_eq!(
            [request_pages(None, false), request_pages(None, true)],
            [64, 128]
        );
    }
}
