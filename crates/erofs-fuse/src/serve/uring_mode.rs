//! Whether a mount takes its requests over io_uring.

use erofs_engine::WorkersMode;
use fuse_transport::{Session, probe_io_uring};

use crate::error::Error;
use crate::helper;
use crate::options::{IoUring, MountOptions};

/// How the option `io_uring` applies to one mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UringMode {
    /// Not asked of the kernel.
    Off,
    /// Used if the kernel offers it.
    Preferred,
    /// An error if the kernel does not offer it.
    Required,
}

impl UringMode {
    /// What the options ask for, the process may use and the kernel has enabled.
    pub(super) fn new(options: &MountOptions) -> Result<Self, Error> {
        match options.io_uring {
            IoUring::Off => Ok(Self::Off),
            // Its gain is serving on the CPU of the reader, which only pinned workers can.
            IoUring::Auto if options.engine.workers != WorkersMode::PerCpu => Ok(Self::Off),
            IoUring::Auto if helper::io_uring_is_enabled() && probe_io_uring().is_ok() => {
                Ok(Self::Preferred)
            }
            IoUring::Auto => Ok(Self::Off),
            IoUring::On => {
                let refused = |error| Error::IoUring(format!("io_uring cannot be used: {error}"));
                probe_io_uring().map_err(refused)?;
                Ok(Self::Required)
            }
        }
    }

    /// Whether the handshake asks for it.
    pub(super) fn is_wanted(self) -> bool {
        self != Self::Off
    }

    /// Checks the outcome of the handshake.
    pub(super) fn check(self, session: &Session) -> Result<(), Error> {
        if self == Self::Required && !session.protocol().io_uring {
            let minor = session.protocol().minor;
            let why = format!(
                "the kernel (FUSE 7.{minor}) did not offer it: 7.42 (Linux 6.14) is needed"
            );
            return Err(Error::IoUring(why));
        }
        Ok(())
    }
}
