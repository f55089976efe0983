//! A process that takes over when the mount helper is killed (`-o standby`).
//!
//! The standby is a fork of the helper, replaced by a new fork whenever the helper gets something
//! that its successor would lack: a server, a file, a descriptor of the device. Until its helper
//! dies, the standby only waits on a pipe. Then it kills the server, whatever the server was doing,
//! and starts another one, as the helper does after a death of the server. So the standby's state
//! cannot be out of date, and it makes no difference whether the server died as well.
//!
//! The next standby exists before the previous one is retired. If the helper dies while both exist,
//! the standby that gets the only byte of a second pipe takes over, and the other one ends.

use std::io::pipe;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use crate::child::ChildProcess;
use crate::respawn;
use erofs_fuse::error::Error;

/// Name of the process, as `ps` shows it, until the standby takes over.
const NAME: &std::ffi::CStr = c"erofs_standby";

/// The standby of this mount helper.
#[derive(Debug)]
pub(super) struct Standby {
    child: ChildProcess,
    /// The end of a pipe that only the helper holds.
    lifeline: OwnedFd,
}

impl Standby {
    /// Starts a standby in place of `last`: a fork that has all descriptors that this process has
    /// now, runs `child`, and exits with its result.
    pub(super) fn start(
        last: Option<&Standby>,
        child: impl FnOnce() -> i32,
    ) -> Result<Self, Error> {
        let (end, lifeline) = pipe().map_err(Error::std_io("pipe"))?;
        let not_kept = [
            Some(end.as_raw_fd()),
            Some(lifeline.as_raw_fd()),
            last.map(|last| last.lifeline.as_raw_fd()),
        ];
        let mut kept = open_descriptors().map_err(Error::std_io("/proc/self/fd"))?;
        kept.retain(|number| !not_kept.contains(&Some(*number)));
        let child = ChildProcess::fork(end.into(), &kept, || {
            let _ = rustix::thread::set_name(NAME);
            let _ = rustix::process::setsid();
            child()
        });
        Ok(Self {
            child: child.map_err(Error::std_io("cannot start a standby"))?,
            lifeline: lifeline.into(),
        })
    }

    /// Ends the standby. The process is left to be reaped, because in a frozen cgroup it ends late.
    pub(super) fn retire(self) -> ChildProcess {
        let _ = self.child.signal(Signal::KILL);
        self.child
    }

    /// Whether the standby is dead; if so, reaps it.
    pub(super) fn has_died(&self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

/// Waits in a standby until its helper is dead.
pub(super) fn outlive_helper() {
    let name = respawn::name_of_process();
    let _ = rustix::io::retry_on_intr(|| rustix::io::read(rustix::stdio::stdin(), &mut [0]));
    let _ = rustix::thread::set_name(&name);
}

/// The right to take over from one helper, which only one of its standbys gets.
#[derive(Debug)]
pub(super) struct Right(OwnedFd);

impl Right {
    pub(super) fn new() -> Result<Self, Error> {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (right, giver) = pipe_with(flags).map_err(Error::io("pipe"))?;
        rustix::io::write(&giver, b"1").map_err(Error::io("pipe"))?;
        Ok(Self(right))
    }

    /// Takes the right, in a standby whose helper is dead; returns false if another standby has it.
    pub(super) fn take(self) -> bool {
        rustix::io::read(&self.0, &mut [0]) == Ok(1)
    }
}

fn open_descriptors() -> std::io::Result<Vec<RawFd>> {
    let entries = std::fs::read_dir("/proc/self/fd")?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.collect())
}
