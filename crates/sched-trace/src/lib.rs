//! Record and read scheduler traces: who waited, how long, and behind whom.
//!
//! * [`record`] records live through tracefs.
//! * [`open`] reads a trace file of any format known here; [`perfetto`] writes one.
//! * [`latency`] pairs wake-ups and preemptions with the switches that ended them.
//! * [`blame`] tells behind whom a thread waited.
//! * [`stats`] sums up.
#![forbid(unsafe_code)]

pub mod blame;
mod comm;
mod error;
mod event;
mod ftrace;
pub mod latency;
mod names;
pub mod perfetto;
mod read;
pub mod record;
pub mod stats;
mod trace;

pub use comm::Comm;
pub use error::{Error, Result};
pub use event::{Event, Kind, TaskState, UNKNOWN_PID};
pub use names::{Name, Names};
pub use read::{ReadOptions, open};
pub use trace::{Slice, Thread, Trace};
