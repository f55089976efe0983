//! Records and reads scheduler traces, and measures scheduling latency.
//!
//! ```
//! use sched_trace::{ReadOptions, latency};
//! // The lines of /sys/kernel/tracing/trace about one wake-up. `open` reads a file instead.
//! let text = "\
//! shell-77 [000] d..2. 100.000101: sched_waking: comm=app pid=9 prio=120 target_cpu=000
//! shell-77 [000] d..2. 100.000110: sched_switch: prev_comm=shell prev_pid=77 prev_prio=120 \
//! prev_state=S ==> next_comm=app next_pid=9 next_prio=120
//! ";
//! let file = std::io::Cursor::new(text);
//! let trace = sched_trace::read(file, "trace.txt".as_ref(), &ReadOptions::default())?;
//! let report = latency::analyse(&trace);
//! let wait = &report.waits[0];
//! assert_eq!((wait.pid, wait.end_ns - wait.start_ns), (9, 9_000));
//! println!("{} waited {} ns for CPU {}", wait.comm, wait.end_ns - wait.start_ns, wait.cpu);
//! # Ok::<(), sched_trace::Error>(())
//! ```
//!
//! * [`record`] records live through tracefs.
//! * [`open`] reads a trace file of any known format; [`perfetto`] writes one.
//! * [`interrupts`] shows what ran within the slices of threads, [`sleeps`] the functions in which
//!   they slept.
//! * [`latency`] pairs wake-ups and preemptions with the switches that end them.
//! * [`completeness`] shows on which CPUs and in which intervals events are missing.
//! * [`quotas`] shows which control groups were throttled by their quotas.
//! * [`timeline`] holds what ran on each CPU; [`blame`] shows which threads others waited behind.
//! * [`why`] follows the chain of events that a thread waited for.
//! * [`stats`] summarizes samples.
#![forbid(unsafe_code)]

pub mod blame;
mod claims;
mod comm;
pub mod completeness;
mod donation;
mod error;
mod event;
mod ftrace;
mod input;
pub mod interrupted;
pub mod interrupts;
pub mod latency;
mod names;
mod notice;
pub mod perfetto;
mod policy;
pub mod quotas;
mod read;
pub mod record;
mod schema;
#[cfg(test)]
mod script;
mod settings;
pub mod sleeps;
pub mod stats;
pub mod timeline;
mod trace;
pub mod why;

pub use claims::{Claims, Loss};
pub use comm::Comm;
pub use error::{Error, Fault, Result};
pub use event::{Event, Interrupt, Kind, Task, TaskState, UNKNOWN_PID, Wake};
pub use input::ReadOptions;
pub use names::{Name, Names};
pub use notice::Notice;
pub use policy::Policy;
pub use read::{open, read};
pub use settings::SchedulerSettings;
pub use trace::{Slice, Thread, Trace};
