//! Options of a recording: events, clock, buffers.

/// How to record.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Ring buffer of each CPU, in KiB. A busy CPU writes about 3 MiB a second.
    pub buffer_kib_per_cpu: usize,
    /// The kernel's clock for the time stamps; "mono" is CLOCK_MONOTONIC, as
    /// [`now_ns`](super::now_ns) reads it.
    pub clock: String,
    /// When the buffers are emptied.
    pub drain: Drain,
    /// Work queue and kthread_worker events, which name what a kworker served.
    pub work_events: bool,
    /// `sched_migrate_task`, which shows where a thread waited.
    pub migrations: bool,
    /// `fuse_request_send`, where the kernel has it (Linux 6.10): when programs sent requests to
    /// FUSE mounts.
    pub requests: bool,
    /// Bytes of memory that streaming may use; later events are counted as lost.
    pub keep_bytes: usize,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            buffer_kib_per_cpu: 8192,
            clock: "mono".into(),
            drain: Drain::Stream,
            work_events: true,
            migrations: true,
            requests: false,
            keep_bytes: 1 << 30,
        }
    }
}

/// When the ring buffers are emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// A thread empties them whenever one is half full: any length of recording.
    Stream,
    /// Nothing runs while recording; what does not fit is lost, oldest first, and counted.
    AtStop,
}
