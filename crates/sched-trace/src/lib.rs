//! Records and reads scheduler traces, and measures scheduling latency.
//!
//! * [`record`] records live through tracefs.
//! * [`open`] reads a trace file of any known format; [`perfetto`] writes one.
//! * [`latency`] pairs wake-ups and preemptions with the switches that end them.
//! * [`timeline`] holds what ran on each CPU; [`blame`] says which threads the waits were spent
//!   behind.
//! * [`why`] follows the chain of events that a thread waited for.
//! * [`stats`] summarizes.
#![forbid(unsafe_code)]

pub mod blame;
mod comm;
mod error;
mod event;
mod ftrace;
mod input;
pub mod latency;
mod names;
mod notice;
pub mod perfetto;
mod read;
pub mod record;
mod settings;
pub mod stats;
pub mod timeline;
mod trace;
pub mod why;

pub use comm::Comm;
pub use error::{Error, Result};
pub use event::{Event, Kind, TaskState, UNKNOWN_PID};
pub use input::ReadOptions;
pub use names::{Name, Names};
pub use notice::Notice;
pub use read::{open, read};
pub use settings::SchedulerSettings;
pub use trace::{Slice, Thread, Trace};
