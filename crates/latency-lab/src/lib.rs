//! Measures scheduling latency: experiments, load, statistics and reports.
//!
//! An engine is a mount and the process that serves it, if any: the kernel's own EROFS, erofsfuse
//! and erofast are started, measured and ended in the same way, and the order of launches favours
//! none of them.
//!
//! * [`launch`]: cold launches of a real program from each engine's mount
//! * [`read`]: throughput and latency of reading
//! * [`suite`]: several programs and trees in one run, one row each
//! * [`diff`]: compares two reports, for example from different days or devices
//! * [`recordings`]: compares two recordings of the scheduler: which threads wait longer
//! * [`report`]: makes the page and the tables of a stored report, which may be from another
//!   machine
//! * [`pressure`]: launches while memory is short
//! * [`hotplug`]: reads while a CPU goes offline and comes back
//! * [`kernel`]: launches with the variants of the kernel's own EROFS, in a virtual machine
//! * [`engine`]: the engines, and how each mounts an image
//! * [`load`]: keeps the machine busy during the measurements
//! * [`schedule`]: the order of measurements; needs neither a clock nor processes, so a mock
//!   suffices to test it
//! * [`statistics`]: from samples to "faster", "slower" or "no difference"
#![forbid(unsafe_code)]

mod cgroup;
mod compile;
mod error;
mod figure;
mod findings;
mod interrupt;
mod mounts;
mod process;
mod progress;
mod scratch;
mod shell;
mod table;

pub mod diff;
pub mod engine;
pub mod environment;
pub mod hotplug;
pub mod html;
pub mod kernel;
pub mod launch;
pub mod load;
pub mod pressure;
pub mod read;
pub mod recordings;
pub mod report;
pub mod schedule;
pub mod statistics;
pub mod suite;

#[cfg(test)]
#[path = "../tests/common/schema.rs"]
mod schema;

pub use error::LabError;
pub use interrupt::Interrupt;
pub use mounts::{Mount, mountinfo};
pub use process::DaemonMemory;
pub use progress::{Progress, Silent};
pub use report::{Report, Reports};

/// Result of an operation of the lab; an error is one line.
pub type Result<T, E = LabError> = std::result::Result<T, E>;
