//! Options of a recording: events, clock, buffers.

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Size of each CPU's ring buffer in KiB. A busy CPU writes about 3 MiB per second.
    pub buffer_kib_per_cpu: usize,
    /// When the buffers are emptied.
    pub drain: Drain,
    /// Whether to record `fuse_request_send` and `fuse_request_end`, if the kernel has them (Linux
    /// 6.10). They show when programs sent requests to FUSE mounts, and which threads answered the
    /// requests.
    pub requests: bool,
    /// Whether to record `block_rq_complete` and `block_bio_complete`, which show when reads and
    /// writes of block devices completed.
    pub blocks: bool,
    /// Whether to record `irq_handler_entry`, `softirq_entry` and the matching exits, which show
    /// what ran within the slices of threads.
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
    /// A thread empties the buffers whenever one is half full: for recordings of any length.
    Stream,
    /// No thread empties the buffers during the recording; events that do not fit are lost, oldest
    /// first, and counted.
    AtStop,
}
