//! Options of a recording: events, clock, buffers.

/// How to record.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Ring buffer of each CPU, in KiB. A busy CPU writes about 3 MiB a second.
    pub buffer_kib_per_cpu: usize,
    /// When the buffers are emptied.
    pub drain: Drain,
    /// `fuse_request_send`, where the kernel has it (Linux 6.10): when programs sent requests to
    /// FUSE mounts.
    pub requests: bool,
    /// `block_rq_complete` and `block_bio_complete`: whose reads of a block device are done.
    pub blocks: bool,
    /// `irq_handler_entry`, `softirq_entry` and their ends: what ran within the slices of threads.
    pub interrupts: bool,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            buffer_kib_per_cpu: 8192,
            drain: Drain::Stream,
            requests: false,
            blocks: false,
            interrupts: false,
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
