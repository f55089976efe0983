//! Read-ahead as it fits, where we may ask for it.

use std::io;
use std::path::Path;

use crate::{Error, mounting};

/// KiB that the kernel reads ahead of a stream, and around a page fault.
///
/// The kernel sets 128 for FUSE, whatever INIT says, and that is also the largest request it then
/// makes of a buffered read; 1024 is one request of the largest size that is allowed by default
/// (256 pages). Streams gain from more, the start of a program from less: 512 is the
/// middle. docs/tuning.md has the figures.
pub const READ_AHEAD_KB: u32 = 512;

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
