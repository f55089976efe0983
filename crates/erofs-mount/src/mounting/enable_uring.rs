//! The kernel's switch for FUSE over io_uring.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::lock::lock_within;
use erofs_fuse::error::{Error, needs_root};
use erofs_fuse::options::MountOptions;

/// Only mounts made while this parameter is Y are offered io_uring; later changes do not affect
/// them.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// How long to wait for another mount's handshake, which normally takes milliseconds. A mount that
/// hangs in its handshake delays others by no more than this.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sets the parameter during the handshake if the kernel has io_uring off and the mount should use
/// it, and restores the parameter when dropped. The file is locked meanwhile: otherwise another
/// mount could see the parameter enabled, and make its handshake after this mount has restored it.
#[derive(Debug)]
pub(crate) struct EnableUringGuard(File);

impl EnableUringGuard {
    /// Sets the parameter; `None` if it need not be changed.
    pub(crate) fn new(options: &MountOptions) -> Result<Option<Self>, Error> {
        if !options.io_uring {
            return Ok(None);
        }
        let opened = File::options().write(true).open(PARAMETER);
        let _ = opened.as_ref().is_ok_and(lock);
        if is_enabled() {
            return Ok(None);
        }
        let set = |mut file: File| file.write_all(b"Y").map(|()| file);
        match opened.and_then(set) {
            Ok(file) => Ok(Some(Self(file))),
            Err(error) => {
                let why = needs_root(&error, ", or io_uring=off");
                Err(Error::IoUring(format!("{PARAMETER}: {why}")))
            }
        }
    }
}

impl Drop for EnableUringGuard {
    fn drop(&mut self) {
        let _ = self.0.write_all(b"N");
        // Closing would not release the lock, because the server has a copy of the descriptor.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Restores the parameter if the mount helper was killed during the handshake. Used by the process
/// that waits for the mount.
#[derive(Debug)]
pub(crate) struct EnableUringRestorer(Option<File>);

impl EnableUringRestorer {
    pub(crate) fn new(options: &MountOptions) -> Self {
        let open = || File::options().write(true).open(PARAMETER).ok();
        let was_off = |file: &File| {
            lock(file);
            let is_off = !is_enabled();
            let _ = flock(file, FlockOperation::Unlock);
            is_off
        };
        Self(options.io_uring.then(open).flatten().filter(was_off))
    }

    /// Restores the parameter. Call this once the mount helper has ended and nothing is mounted.
    pub(crate) fn restore(self) {
        if let Some(file) = self.0.filter(lock).filter(|_| is_enabled()) {
            drop(EnableUringGuard(file));
        }
    }
}

/// Waits for the handshake of another mount; returns false if it took too long.
fn lock(file: &File) -> bool {
    lock_within(PATIENCE, file)
}

/// Whether new mounts are offered io_uring.
fn is_enabled() -> bool {
    std::fs::read(PARAMETER).is_ok_and(|value| matches!(value.first(), Some(b'Y' | b'1')))
}
