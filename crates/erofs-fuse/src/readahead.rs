//! Read-ahead as it fits, where we may ask for it.

use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::{Error, mounting};

/// KiB that the kernel reads ahead of a stream, and around a page fault.
///
/// The kernel sets 128 for FUSE, whatever INIT says. Streams gain from more, the start of a program
/// from less: 512 is the middle. docs/tuning.md has the figures.
pub const READ_AHEAD_KB: u32 = 512;

/// Pages of the smallest and of the largest request that are chosen; more than the latter is not
/// allowed by default (`fs.fuse.max_pages_limit`).
const REQUEST_PAGES: RangeInclusive<u32> = 64..=256;

/// Pages of 4 KiB of the largest request.
///
/// Half of what is read ahead, so that two threads serve it, and whoever waits for a page waits for
/// its half only; or all of it, where idle workers help with one request:
/// * over io_uring, where of two requests at once one goes to the overflow queue, whose entry then is the one
///   the kernel takes next, so that further requests would be served on another CPU;
/// * with slow codecs, where each request would wait for the pcluster at its border that the other
///   one decodes.
pub(crate) fn request_pages(read_ahead_kb: Option<u32>, whole: bool) -> u16 {
    let window = read_ahead_kb.unwrap_or(READ_AHEAD_KB) / 4;
    let request = if whole { window } else { window / 2 };
    request.clamp(*REQUEST_PAGES.start(), *REQUEST_PAGES.end()) as u16
}

/// Sets the read-ahead of a mount. Only root may; where nobody asked for a figure and it cannot be
/// had, everything works as before with smaller requests.
pub(crate) fn set(mountpoint: &Path, wish: Option<u32>) -> Result<(), Error> {
    let kib = wish.unwrap_or(READ_AHEAD_KB);
    match (write(mountpoint, kib), wish) {
        (Err(error), Some(_)) => Err(Error::mountpoint(
            mountpoint,
            format!("read_ahead_kb={kib} cannot be set: {error}"),
        )),
        _ => Ok(()),
    }
}

fn write(mountpoint: &Path, kib: u32) -> io::Result<()> {
    // From the table, not by stat(2): that would ask the mount, which must be served first.
    let entry = mounting::find(mountpoint)
        .map_err(io::Error::other)?
        .ok_or_else(|| io::Error::other("the mount is gone"))?;
    let knob = format!("/sys/class/bdi/{}/read_ahead_kb", entry.device);
    std::fs::write(&knob, kib.to_string())
        .map_err(|error| io::Error::new(error.kind(), format!("{knob}: {error}")))
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
