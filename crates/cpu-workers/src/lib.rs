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
//! * Jobs of one worker run in the order they were queued, one after another. There is no
//!   stealing and no balancing: who queues chooses the CPU ([`Workers::idle_worker`] helps).
//! * Every CPU that is online and in the process's cpuset has a worker `NAME/N`. One that cannot
//!   be made leaves its slot empty, and the unbound pool (`NAME/uN`) takes what it would have got.
//! * [`Priority::High`] is SCHED_FIFO 1, where refused nice -20, where refused normal;
//!   [`Workers::notices`] says what and why.
//! * CPUs come and go and the cpuset changes: workers follow, and no queued job is lost.
//! * A worker can watch a [`EventSource`] besides its queue: a request that arrives there is served
//!   with one wake-up.
//!
//! The queue, the parking and the slots are modelled under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p cpu-workers --release --lib loom_`. One test takes CPU 1
//! of the machine offline for a moment, as root and only with `EROFAST_TEST_HOTPLUG=1`.
#![forbid(unsafe_code)]

mod attached_source;
mod context;
mod counters;
mod cpulist;
mod cpus;
mod error;
mod event_source;
mod event_waker;
mod faults;
mod histogram;
#[cfg(all(test, loom))]
mod models;
mod notices;
mod options;
mod parker;
mod priority;
mod queue;
mod refusal;
mod report;
mod slot;
mod spawn;
mod stats;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod topology;
mod uevent;
mod unbound;
mod watcher;
mod worker;
mod workers;

pub use context::WorkerContext;
pub use counters::now_ns;
pub use cpus::{Cpus, SystemCpus, online_cpus};
pub use error::Error;
pub use event_waker::EventWaker;
pub use options::{Mode, Priority, WorkerOptions};
/// Lends a closure of the caller's stack to jobs, for the length of one call.
pub use sys::lend::{Lent, lend};

pub use event_source::{EventSource, EventSourceFactory, EventSourceState, OpenEventSource, Waker};
pub use stats::{Policy, Summary, WorkerStats};
pub use worker::{Job, serve};
pub use workers::Workers;
