//! Record and read scheduler traces: who waited, how long, and behind whom.
//!
//! * [`record`] records live through tracefs.
//! * [`latency`] pairs wake-ups and preemptions with the switches that ended them.
//! * [`stats`] sums up.
#![forbid(unsafe_code)]

mod comm;
mod error;
mod event;
mod ftrace;
pub mod latency;
mod names;
pub mod record;
pub mod stats;
mod trace;

pub use comm::Comm;
pub use error::{Error, Result};
pub use event::{Event, Kind, TaskState, UNKNOWN_PID};
pub use names::{Name, Names};
pub use trace::{Slice, Thread, Trace};

/// How to read a trace file.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The most events to keep in memory (72 bytes each); a bigger trace is an error.
    pub max_events: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            max_events: 40_000_000,
        }
    }
}
