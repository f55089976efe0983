//! Whether a mount takes its requests over io_uring, and the threads that this needs beside the
//! workers.

use std::io;
use std::sync::Arc;

use erofs_engine::{Hipri, WorkersMode};
use fuse_transport::{Channel, Session, probe_io_uring};

use crate::options::{IoUring, MountOptions};
use crate::{Error, event_source};

/// Mounts that are made while this says Y are offered io_uring; they keep it when it changes.
const KNOB: &str = "/sys/module/fuse/parameters/enable_uring";

/// The wish of one mount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// To be put to the kernel.
    pub(crate) wanted: bool,
    demanded: bool,
}

impl Wish {
    /// What the options want, the process may and the kernel has enabled.
    pub(crate) fn new(options: &MountOptions) -> Result<Self, Error> {
        let wish = |wanted, demanded| Ok(Self { wanted, demanded });
        match options.io_uring {
            IoUring::Off => wish(false, false),
            // Placement is its gain, and only pinned workers have a place.
            IoUring::Auto if options.engine.workers != WorkersMode::PerCpu => wish(false, false),
            IoUring::Auto => wish(is_enabled() && probe_io_uring().is_ok(), false),
            IoUring::On => {
                let refused = |error| Error::IoUring(format!("io_uring cannot be used: {error}"));
                probe_io_uring().map_err(refused)?;
                wish(true, true)
            }
        }
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

/// `io_uring=on` where the kernel has it off: on for the length of the handshake, then as it was.
#[derive(Debug)]
pub(crate) struct Knob(());

impl Knob {
    /// `None` where there is nothing to turn.
    pub(crate) fn turn(options: &MountOptions) -> Result<Option<Self>, Error> {
        if options.io_uring != IoUring::On || is_enabled() {
            return Ok(None);
        }
        std::fs::write(KNOB, "Y").map_err(|error| Error::IoUring(format!("{KNOB}: {error}")))?;
        Ok(Some(Self(())))
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        let _ = std::fs::write(KNOB, "N");
    }
}

fn is_enabled() -> bool {
    std::fs::read(KNOB).is_ok_and(|value| matches!(value.first(), Some(b'Y' | b'1')))
}

/// Starts what every mount over io_uring has beside its workers: the overflow queue, and the
/// thread for what the device still brings (FORGET). Before this, all requests wait.
///
/// The overflow queue takes requests while a CPU's own entry is busy. Its thread is real-time from the
/// start where the workers may be: it seldom runs, and a program waits for it when it does.
pub(crate) fn start_helpers(session: &Arc<Session>, hipri: Hipri) -> Result<(), Error> {
    event_source::spawn("erofs_forget", session, Session::device_channel)?;
    event_source::spawn("erofs_overflow", session, move |session| {
        if hipri != Hipri::Off {
            // A refusal was said for the workers already.
            let _ = sys::sched::set_policy(0, sys::sched::Policy::Fifo(1));
        }
        session.overflow_channel()
    })
}

/// The channel of a serving thread: its CPU's, or one for all queues where it has no CPU.
pub(crate) fn channel(session: &Arc<Session>, cpu: Option<usize>) -> io::Result<Channel> {
    match cpu {
        Some(cpu) => session.cpu_channel(cpu),
        None => session.overflow_channel(),
    }
}
