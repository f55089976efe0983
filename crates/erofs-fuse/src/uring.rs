//! Whether a mount takes its requests over io_uring, and the threads that this needs beside the
//! workers.

use std::io;
use std::sync::Arc;

use erofs_engine::{Hipri, WorkersMode};
use fuse_transport::{Channel, Session, probe_io_uring};

use crate::options::{IoUring, MountOptions};
use crate::{Error, door};

/// Mounts that are made while this says Y are offered io_uring; they keep it when it changes.
const KNOB: &str = "/sys/module/fuse/parameters/enable_uring";

/// The wish of one mount, for as long as the mount is being made.
#[derive(Debug)]
pub(crate) struct Wish {
    /// To be put to the kernel.
    pub(crate) wanted: bool,
    demanded: bool,
    /// The knob was N before.
    changed: bool,
}

impl Wish {
    /// What the options want, the process may and the kernel has enabled. `io_uring=on` enables it
    /// for the length of the handshake.
    pub(crate) fn new(options: &MountOptions) -> Result<Self, Error> {
        let no = Self {
            wanted: false,
            demanded: false,
            changed: false,
        };
        match options.io_uring {
            IoUring::Off => Ok(no),
            // Placement is its gain, and only pinned workers have a place.
            IoUring::Auto if options.engine.workers != WorkersMode::PerCpu => Ok(no),
            IoUring::Auto => Ok(Self {
                wanted: is_enabled() && probe_io_uring().is_ok(),
                ..no
            }),
            IoUring::On => Self::demand(),
        }
    }

    fn demand() -> Result<Self, Error> {
        let refused =
            |error: io::Error| Error::IoUring(format!("io_uring cannot be used: {error}"));
        probe_io_uring().map_err(refused)?;
        let changed = !is_enabled();
        if changed {
            std::fs::write(KNOB, "Y")
                .map_err(|error| Error::IoUring(format!("{KNOB}: {error}")))?;
        }
        Ok(Self {
            wanted: true,
            demanded: true,
            changed,
        })
    }

    /// Looks at what came of it.
    pub(crate) fn check(&self, session: &Session) -> Result<(), Error> {
        if self.demanded && !session.protocol().io_uring {
            let minor = session.protocol().minor;
            let why = format!(
                "the kernel (FUSE 7.{minor}) did not offer it: 7.42 (Linux 6.14) is needed"
            );
            return Err(Error::IoUring(why));
        }
        Ok(())
    }
}

impl Drop for Wish {
    /// The handshake is over: the knob is as it was.
    fn drop(&mut self) {
        if self.changed {
            let _ = std::fs::write(KNOB, "N");
        }
    }
}

fn is_enabled() -> bool {
    std::fs::read(KNOB).is_ok_and(|value| matches!(value.first(), Some(b'Y' | b'1')))
}

/// Starts what every mount over io_uring has beside its workers: the keeper of all queues, and the
/// thread for what the device still brings (FORGET). Before this, all requests wait.
///
/// The keeper serves what a busy worker cannot take. Where the workers may be real-time it is so
/// from the start: it seldom runs, and a program waits for it when it does.
pub(crate) fn start_helpers(session: &Arc<Session>, hipri: Hipri) -> Result<(), Error> {
    door::spawn("erofs_forget", session, Session::device_channel)?;
    door::spawn("erofs_keeper", session, move |session| {
        if hipri != Hipri::Off {
            // A refusal was said for the workers already.
            let _ = sys::sched::set_policy(0, sys::sched::Policy::Fifo(1));
        }
        session.keeper_channel()
    })
}

/// The channel of a serving thread: its CPU's, or one for all queues where it has no CPU.
pub(crate) fn channel(session: &Arc<Session>, cpu: Option<usize>) -> io::Result<Channel> {
    match cpu {
        Some(cpu) => session.cpu_channel(cpu),
        None => session.keeper_channel(),
    }
}
