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
#![forbid(unsafe_code)]

mod error;
mod options;
mod source;
mod stats;
mod workers;

pub use error::Error;
pub use options::{Mode, Priority, WorkerOptions};
pub use source::{Door, MakeSource, Source, SourceState, Waker};
pub use stats::{Policy, Summary, WorkerStats};
pub use workers::{Job, WorkerContext, Workers, serve};
