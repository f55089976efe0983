//! Errors of the worker pool.

use std::io;

/// Why workers could not be started or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not enough memory for the table of slots.
    #[error("no memory for the worker slots of {0} CPUs")]
    SlotTable(usize),
    /// The set of CPUs cannot be read.
    #[error("cannot determine which CPUs are usable: {0}")]
    Cpus(#[source] io::Error),
    /// No thread of the unbound pool could be created.
    #[error("cannot create any of the {threads} threads of the unbound pool: {source}")]
    UnboundPool {
        /// Number of threads requested.
        threads: usize,
        /// The system's error for the first thread.
        source: io::Error,
    },
    /// No worker could open its event source.
    #[error("none of the {workers} workers could open its source: {source}")]
    Attach {
        /// Number of workers that tried to open their source.
        workers: usize,
        /// The first worker's error.
        source: io::Error,
    },
    /// `attach` was called on a worker's own thread, which would have to wait for itself.
    #[error("attach() was called on a worker's own thread")]
    OnWorker,
    /// The pool has been shut down.
    #[error("the workers have been shut down")]
    ShutDown,
}
