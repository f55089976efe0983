//! One pinned worker thread per CPU, with priorities, hotplug and an unbound fallback.
//!
//! ```
//! use cpu_workers::{WorkerOptions, Workers};
//! let workers = Workers::start(WorkerOptions::default())?;
//! let (sender, receiver) = std::sync::mpsc::channel();
//! workers.queue(Some(0), Box::new(move |context| {
//!     let _ = sender.send(context.cpu);
//! }));
//! println!("ran on the worker of CPU {:?}", receiver.recv()?);
//! workers.shutdown();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * Jobs of one worker run one after another in the order in which they were queued. There is no
//!   stealing and no balancing: the caller chooses the CPU.
//! * Every CPU that is online and in the process's cpuset has a worker `NAME/N`. If that worker
//!   cannot be created, its slot stays empty, and the unbound pool (`NAME/uN`) takes its jobs.
//! * [`Priority::High`] is SCHED_FIFO 1; if that is refused, it is the lowest nice value allowed
//!   and a slice of 100 us. [`Workers::notices`] reports what was refused and why.
//! * [`Workers::check_cpus`] follows CPU hotplug and changes of the cpuset; no queued job is lost.
//! * A worker can sleep on an [`EventSource`] in addition to its queue: a request that arrives
//!   there is served with one wake-up.
//!
//! Modules: `worker` (one thread), `topology` (all pinned threads), `priority` and `stats`;
//! `workers.rs` combines them.
//!
//! Queue, parker and slots are modelled under loom: `cargo test -p cpu-workers --features loom
//! --lib loom_`. One test takes CPU 1 of the machine offline for a moment; that test needs root and
//! `EROFAST_TEST_HOTPLUG=1`.
#![forbid(unsafe_code)]

mod error;
mod faults;
#[cfg(all(test, feature = "loom"))]
mod models;
mod options;
mod priority;
mod report;
mod stats;
mod sync;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
mod topology;
mod worker;
mod workers;

pub use error::Error;
pub use options::{Mode, Priority, RESCAN_INTERVAL, WorkerOptions};
pub use stats::types::{Policy, Summary, WorkerStats};
pub use sys::clock::now_ns;
/// Lends a closure on the caller's stack to jobs for the duration of one call.
pub use sys::lend::{Lent, lend};

pub use sys::eventfd::EventFd;
/// A condition variable for data that real-time workers share with other threads.
pub use sys::pi_condvar::PiCondvar;
pub use sys::pi_mutex::{PiMutex, PiMutexGuard};
pub use topology::cpu_list::{online as online_cpus, plugged_in as plugged_in_cpus};
pub use topology::cpus::{Cpus, SystemCpus};
pub use worker::event_source::{
    EventSource, EventSourceFactory, EventSourceState, OpenEventSource, Waker,
};
pub use worker::lowered::{lower, raise};
pub use worker::thread::{Job, WorkerContext, serve};
pub use workers::{Following, Workers};
