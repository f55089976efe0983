//! Sets up requests over io_uring, if the mount asks for it.

use std::io;

use erofs_engine::WorkersMode;
use erofs_engine::cpu_workers::plugged_in_cpus;
use fuse_transport::{Rings, Session};

use crate::error::Error;
use crate::options::MountOptions;

/// Creates the rings before the sandbox forbids it: one for each CPU or for each thread that serves
/// all CPUs, and one for the overflow queue.
pub(super) fn rings(options: &MountOptions) -> Result<Option<Rings>, Error> {
    let rings = options.io_uring.then(|| make(options)).transpose();
    rings.map_err(|error| Error::IoUring(error.to_string()))
}

fn make(options: &MountOptions) -> io::Result<Rings> {
    let per_cpu = options.engine.workers == WorkersMode::PerCpu;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // If pinned workers are refused, an unbound thread takes their place.
    let overflow = 1 + if per_cpu { 1 } else { threads };
    let cpus = plugged_in_cpus();
    let cpus = cpus.ok_or_else(|| io::Error::other("the number of possible CPUs is unknown"))?;
    Rings::new(&cpus, per_cpu, overflow)
}

/// Returns an error if the mount asked for io_uring and the kernel does not offer it.
pub(super) fn check(options: &MountOptions, session: &Session) -> Result<(), Error> {
    let protocol = session.protocol();
    if protocol.io_uring || !options.io_uring {
        return Ok(());
    }
    let minor = protocol.minor;
    let why =
        format!("the kernel (FUSE 7.{minor}) does not offer it: it needs FUSE 7.42 (Linux 6.14)");
    Err(Error::IoUring(why))
}
