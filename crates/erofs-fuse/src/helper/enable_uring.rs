//! The kernel's switch for FUSE over io_uring.

use erofs_engine::WorkersMode;
use rustix::fs::Access;

use crate::error::Error;
use crate::options::{IoUring, MountOptions};

/// Mounts made while this is Y are offered io_uring; a later change does not affect them.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Where the kernel has io_uring off and the mount is to have it: sets the parameter for the length
/// of the handshake, and restores it when dropped.
#[derive(Debug)]
pub(super) struct EnableUringGuard(());

impl EnableUringGuard {
    /// `None` where the parameter need not be changed.
    pub(super) fn new(options: &MountOptions) -> Result<Option<Self>, Error> {
        if !enables(options) || is_enabled() {
            return Ok(None);
        }
        match std::fs::write(PARAMETER, "Y") {
            Ok(()) => Ok(Some(Self(()))),
            Err(error) if options.io_uring == IoUring::On => {
                Err(Error::IoUring(format!("{PARAMETER}: {error}")))
            }
            Err(_) => Ok(None),
        }
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

/// Whether a mount with these options has the parameter set for its handshake, where it may:
/// `io_uring=on`, and `auto` where nothing is lost by it. Over io_uring a server that dies is not
/// replaced, and only pinned workers gain.
pub(crate) fn enables(options: &MountOptions) -> bool {
    match options.io_uring {
        IoUring::On => true,
        IoUring::Auto => {
            options.restart == Some(false) && options.engine.workers == WorkersMode::PerCpu
        }
        IoUring::Off => false,
    }
}

/// Whether this process may set the parameter.
pub(crate) fn can_be_enabled() -> bool {
    rustix::fs::access(PARAMETER, Access::WRITE_OK).is_ok()
}
