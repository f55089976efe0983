//! Whether a mount takes its requests over io_uring.

use std::io;

use erofs_engine::WorkersMode;
use erofs_engine::cpu_workers::plugged_in_cpus;
use fuse_transport::{Rings, Session};

use crate::error::Error;
use crate::mounting;
use crate::options::{IoUring, MountOptions};

/// How the option `io_uring` applies to one mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UringMode {
    /// Not asked of the kernel.
    Off,
    /// Used if it is available.
    Preferred,
    /// An error if it is not available.
    Required,
}

/// The mode and what was made for it, before the sandbox forbids to make any.
#[derive(Debug)]
pub(crate) struct Uring {
    pub(crate) mode: UringMode,
    pub(crate) rings: Option<Rings>,
    /// Why there are none, where the kernel has it enabled.
    refused: Option<io::Error>,
    /// The kernel's switch is set for the handshake though it was not asked for.
    enabled: bool,
}

impl Uring {
    /// What the options ask for, the process may use and the kernel has enabled.
    pub(crate) fn new(options: &MountOptions) -> Result<Self, Error> {
        let mode = UringMode::new(options);
        if mode == UringMode::Off {
            return Ok(Self::off());
        }
        match rings(options) {
            Ok(rings) => Ok(Self {
                mode,
                rings: Some(rings),
                refused: None,
                enabled: enables(options),
            }),
            Err(error) if mode == UringMode::Required => Err(refused(&error)),
            Err(error) => Ok(Self {
                mode: UringMode::Off,
                rings: None,
                refused: Some(error),
                enabled: false,
            }),
        }
    }

    /// None.
    pub(crate) fn off() -> Self {
        Self {
            mode: UringMode::Off,
            rings: None,
            refused: None,
            enabled: false,
        }
    }

    /// Whether the handshake asks for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.rings.is_some()
    }

    /// A line for the user where it would be used and cannot be, and where the kernel's switch is
    /// set for it.
    pub(crate) fn notice(&self) -> Option<String> {
        let enabled = || self.enabled.then(|| ENABLED.to_owned());
        let refused = self.refused.as_ref().map(|error| fallback(error));
        refused.or_else(enabled)
    }
}

const ENABLED: &str = "restart=off: io_uring=auto enables io_uring in the kernel for the \
                       handshake of this mount (io_uring=off: /dev/fuse)";

/// What a mount says that goes on without io_uring.
pub(crate) fn fallback(why: &dyn std::fmt::Display) -> String {
    format!("requests come over /dev/fuse: io_uring cannot be used: {why}")
}

fn refused(error: &dyn std::fmt::Display) -> Error {
    Error::IoUring(format!("io_uring cannot be used: {error}"))
}

/// One ring for each CPU, or one for each thread that serves all of them; and the overflow queue's.
fn rings(options: &MountOptions) -> io::Result<Rings> {
    let per_cpu = options.engine.workers == WorkersMode::PerCpu;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Without pinned workers, which may be refused, an unbound thread takes their place.
    let overflow = 1 + if per_cpu { 1 } else { threads };
    let cpus = plugged_in_cpus();
    let cpus = cpus.ok_or_else(|| io::Error::other("the number of possible CPUs is unknown"))?;
    Rings::new(&cpus, per_cpu, overflow)
}

/// Whether `io_uring=auto` has the kernel's switch set for this mount.
fn enables(options: &MountOptions) -> bool {
    options.io_uring == IoUring::Auto
        && mounting::enables_io_uring(options)
        && mounting::io_uring_can_be_enabled()
        && !mounting::io_uring_is_enabled()
}

impl UringMode {
    fn new(options: &MountOptions) -> Self {
        match options.io_uring {
            IoUring::Off => Self::Off,
            // Its gain is serving on the CPU of the reader, which only pinned workers can.
            IoUring::Auto if options.engine.workers != WorkersMode::PerCpu => Self::Off,
            IoUring::Auto if mounting::io_uring_is_enabled() || enables(options) => Self::Preferred,
            IoUring::Auto => Self::Off,
            IoUring::On => Self::Required,
        }
    }

    /// Checks the outcome of the handshake.
    pub(crate) fn check(self, session: &Session) -> Result<(), Error> {
        if self != Self::Required || session.protocol().io_uring {
            return Ok(());
        }
        if let Some(why) = session.ring_refusal() {
            return Err(refused(&why));
        }
        let minor = session.protocol().minor;
        let why =
            format!("the kernel (FUSE 7.{minor}) did not offer it: 7.42 (Linux 6.14) is needed");
        Err(Error::IoUring(why))
    }
}
