//! Information about a run, passed to its job.

/// Where and when a job runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerContext {
    /// The CPU this worker is pinned to; `None` on a thread of the unbound pool.
    pub cpu: Option<usize>,
    /// CLOCK_MONOTONIC when the job was queued, ns.
    pub queued_ns: u64,
    /// CLOCK_MONOTONIC when the job started, ns.
    pub started_ns: u64,
}
