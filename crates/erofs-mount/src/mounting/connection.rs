//! The kernel's FUSE connection of a mount, which the helper aborts when the server exits.
//!
//! Closing the last descriptor of `/dev/fuse` would do the same, but a killed server may never
//! close it: its thread that stores pages (FUSE_NOTIFY_STORE) may wait, unkillable, for a page
//! whose read no thread will answer. The helper still notices that the socket closes, because that
//! thread has its own descriptor table and has closed the socket there. Neither a pidfd (even with
//! PIDFD_THREAD, since Linux 6.15) nor the parent-death signal (dropped if the server may not
//! signal the helper) would report the death in time.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use super::mounted::Mounted;
use erofs_fuse::error::Error;
use erofs_fuse::poll::has_ended;

#[derive(Debug)]
pub(crate) struct Connection {
    device: OwnedFd,
}

impl Connection {
    /// Finds the connection of `device`, a descriptor of `/dev/fuse` that is bound to a mount.
    pub(crate) fn new(device: &OwnedFd) -> Result<Self, Error> {
        let device = rustix::io::fcntl_dupfd_cloexec(device, 0).map_err(Error::io("/dev/fuse"))?;
        Ok(Self { device })
    }

    pub(crate) fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// Ends every request with an error, even for a mount that was detached.
    pub(crate) fn abort(&self, mounted: &Mounted) -> Result<(), Error> {
        let control = abort_file(&mounted.id.device);
        // Check this only after opening the file: until then, the number may be reused for another
        // connection.
        if !self.is_alive() {
            return Ok(());
        }
        match control {
            Ok(mut control) => control.write_all(b"1").map_err(Error::std_io("fusectl")),
            Err(_) => mounted.force_abort(),
        }
    }

    /// Whether the connection is alive: neither unmounted nor aborted.
    pub(crate) fn is_alive(&self) -> bool {
        !has_ended(self.device.as_fd())
    }
}

/// Opens the `abort` file of a connection. The file belongs to the user who mounted.
pub(crate) fn abort_file(device: &str) -> std::io::Result<std::fs::File> {
    let number = device.rsplit(':').next().unwrap_or(device);
    let path = format!("/sys/fs/fuse/connections/{number}/abort");
    std::fs::File::options().write(true).open(path)
}
