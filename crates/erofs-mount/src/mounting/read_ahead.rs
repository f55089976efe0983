//! The kernel's read-ahead of a mount.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;

use super::mounted::Mounted;
use erofs_fuse::error::{Error, needs_root};
use erofs_fuse::options::{MountOptions, READ_AHEAD_KB};

/// Read-ahead in KiB while a profile is recorded: the kernel's default for any mount. With larger
/// windows, a launch would use a smaller part of each one.
const RECORDED_KB: u32 = 128;

/// Sets the read-ahead of a mount, which only root may do. A refusal is an error only if a value
/// was requested, because a mount works with smaller requests too.
pub(crate) fn set(mounted: &Mounted, options: &MountOptions) -> Result<(), Error> {
    let asked = options.read_ahead_kb;
    let kib = asked.unwrap_or(match options.records() {
        true => RECORDED_KB,
        false => READ_AHEAD_KB,
    });
    match (write(mounted, kib), asked) {
        (Err(error), Some(_)) => {
            let why = needs_root(&error, "");
            let why = format!("read_ahead_kb={kib} cannot be set: {why}");
            Err(Error::mountpoint(&mounted.mountpoint, why))
        }
        _ => Ok(()),
    }
}

/// Opens the file that sets the read-ahead, in KiB; `None` if access is refused.
pub(crate) fn open(mounted: &Mounted) -> Option<OwnedFd> {
    let file = OpenOptions::new().write(true).open(path(mounted));
    file.ok().map(OwnedFd::from)
}

/// Opens the file that contains the read-ahead, in KiB, for reading.
pub(crate) fn open_to_read(mounted: &Mounted) -> Option<File> {
    File::open(path(mounted)).ok()
}

fn path(mounted: &Mounted) -> String {
    format!("/sys/class/bdi/{}/read_ahead_kb", mounted.id.device)
}

fn write(mounted: &Mounted, kib: u32) -> io::Result<()> {
    let path = path(mounted);
    std::fs::write(&path, kib.to_string())
        .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}
