//! The kernel's read-ahead of a mount.

use std::io;

use super::mounted::Mounted;
use crate::error::Error;
use crate::options::READ_AHEAD_KB;

/// Sets the read-ahead of a mount, which only root may. Unless a value was requested, a refusal is
/// no error: everything works with smaller requests.
pub(super) fn set(mounted: &Mounted, asked: Option<u32>) -> Result<(), Error> {
    let kib = asked.unwrap_or(READ_AHEAD_KB);
    match (write(mounted, kib), asked) {
        (Err(error), Some(_)) => Err(Error::mountpoint(
            &mounted.mountpoint,
            format!("read_ahead_kb={kib} cannot be set: {error}"),
        )),
        _ => Ok(()),
    }
}

fn write(mounted: &Mounted, kib: u32) -> io::Result<()> {
    let path = format!("/sys/class/bdi/{}/read_ahead_kb", mounted.id.device);
    std::fs::write(&path, kib.to_string())
        .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}
