//! Recording live, through tracefs.
//!
//! Everything happens in a tracing instance of our own, so nobody else's tracing is touched. The
//! ladder of [`Recorder::start`]: find or mount tracefs, make the instance, set clock and buffer,
//! enable the events, switch tracing on. Dropping the recorder goes the same way down.

use crate::{Result, Trace};
use std::process::{Command, ExitStatus};

/// How to record.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Ring buffer of each CPU, in KiB. A busy CPU writes about 3 MiB a second.
    pub buffer_kib_per_cpu: usize,
    /// The kernel's clock for the time stamps; "mono" is CLOCK_MONOTONIC, as [`now_ns`] reads it.
    pub clock: String,
    /// When the buffers are emptied.
    pub drain: Drain,
    /// Work queue and kthread_worker events, which name what a kworker served.
    pub work_events: bool,
    /// `sched_migrate_task`, which tells where a thread waited.
    pub migrations: bool,
    /// What streaming may keep in memory, in bytes; what comes later is counted as lost.
    pub keep_bytes: usize,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            buffer_kib_per_cpu: 8192,
            clock: "mono".into(),
            drain: Drain::Stream,
            work_events: true,
            migrations: true,
            keep_bytes: 1 << 30,
        }
    }
}

/// When the ring buffers are emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// A thread empties them whenever one is half full: any length of recording.
    Stream,
    /// Nothing runs while recording; what does not fit is lost, oldest first, and counted.
    AtStop,
}

/// A running recording.
#[derive(Debug)]
pub struct Recorder {}

impl Recorder {
    /// Starts to record.
    pub fn start(options: &RecordOptions) -> Result<Self> {
        let _ = options;
        Err(crate::Error::NoTracefs {
            reason: "being written".into(),
        })
    }

    /// What was recorded since the start or the last `take`; recording goes on.
    pub fn take(&mut self) -> Result<Trace> {
        Err(crate::Error::NoTracefs {
            reason: "being written".into(),
        })
    }

    /// Writes nothing from here on until [`Recorder::resume`]; costs nothing meanwhile.
    pub fn pause(&mut self) -> Result<()> {
        Ok(())
    }

    /// Goes on after [`Recorder::pause`].
    pub fn resume(&mut self) -> Result<()> {
        Ok(())
    }

    /// Stops and hands out what was recorded since the start or the last `take`.
    pub fn stop(self) -> Result<Trace> {
        Err(crate::Error::NoTracefs {
            reason: "being written".into(),
        })
    }
}

/// Records the machine while `command` runs.
pub fn command(command: &mut Command, options: &RecordOptions) -> Result<(ExitStatus, Trace)> {
    let _ = (command, options);
    Err(crate::Error::NoTracefs {
        reason: "being written".into(),
    })
}

/// CLOCK_MONOTONIC in nanoseconds: the time stamps of a trace with the clock "mono".
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
