//! The kernel's switch for FUSE over io_uring.

use crate::error::Error;
use crate::options::{IoUring, MountOptions};

/// Mounts made while this is Y are offered io_uring; a later change does not affect them.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// For `io_uring=on` where the kernel has it off: sets the parameter for the length of the
/// handshake, and restores it when dropped.
#[derive(Debug)]
pub(super) struct EnableUringGuard(());

impl EnableUringGuard {
    /// `None` where the parameter need not be changed.
    pub(super) fn new(options: &MountOptions) -> Result<Option<Self>, Error> {
        if options.io_uring != IoUring::On || is_enabled() {
            return Ok(None);
        }
        std::fs::write(PARAMETER, "Y")
            .map_err(|error| Error::IoUring(format!("{PARAMETER}: {error}")))?;
        Ok(Some(Self(())))
    }
}

impl Drop for EnableUringGuard {
    fn drop(&mut self) {
        let _ = std::fs::write(PARAMETER, "N");
    }
}

/// Whether new mounts are offered io_uring.
pub(crate) fn is_enabled() -> bool {
    std::fs::read(PARAMETER).is_ok_and(|value| matches!(value.first(), Some(b'Y' | b'1')))
}
