//! The kernel's read-ahead of a mount.

use std::io;
use std::path::Path;

use super::table;
use crate::error::Error;
use crate::options::READ_AHEAD_KB;

/// Sets the read-ahead of a mount, which only root may. Unless a value was asked for, a refusal is
/// no error: everything works with smaller requests.
pub(super) fn set(mountpoint: &Path, asked: Option<u32>) -> Result<(), Error> {
    let kib = asked.unwrap_or(READ_AHEAD_KB);
    match (write(mountpoint, kib), asked) {
        (Err(error), Some(_)) => Err(Error::mountpoint(
            mountpoint,
            format!("read_ahead_kb={kib} cannot be set: {error}"),
        )),
        _ => Ok(()),
    }
}

fn write(mountpoint: &Path, kib: u32) -> io::Result<()> {
    // The device number is from the table: stat(2) would ask the mount, which is not served yet.
    let entry = table::find(mountpoint)
        .map_err(io::Error::other)?
        .ok_or_else(|| io::Error::other("the mount is gone"))?;
    let path = format!("/sys/class/bdi/{}/read_ahead_kb", entry.device);
    std::fs::write(&path, kib.to_string())
        .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}
