//! Bounds on the memory that reading a trace file may take.

use crate::Trace;
use crate::error::Fault;

/// Largest accepted number of CPUs.
pub(crate) const CPUS: u32 = 1 << 16;

/// Highest number of simultaneous threads on a 64-bit kernel (`PID_MAX_LIMIT`).
const THREADS: usize = 4 << 20;

/// Maximum total size in bytes of all interned strings: functions, work queues, file names.
const NAME_BYTES: usize = 256 << 20;

/// Maximum total size in bytes of the names of slices and tracks.
pub(crate) const LABEL_BYTES: usize = 256 << 20;

/// Bounds of a reader. A trace that exceeds one of them is refused.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Maximum number of events to keep in memory (up to 80 bytes each).
    pub max_events: usize,
    /// Maximum number of slices, and of their tracks, to keep in memory.
    pub max_slices: usize,
    /// Maximum total size in bytes that all compressed parts of the file may unpack to. Only one
    /// part is in memory at a time.
    pub max_unpacked_bytes: u64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            max_events: 40_000_000,
            max_slices: 4_000_000,
            max_unpacked_bytes: 16 << 30,
        }
    }
}

impl ReadOptions {
    /// Checks the numbers of events, threads and slices of a trace, and the size of its names.
    pub(crate) fn check(&self, trace: &Trace) -> Result<(), Fault> {
        below(trace.events.len(), self.max_events, "events")?;
        below(trace.threads.len(), THREADS, "threads")?;
        below(trace.names.bytes(), NAME_BYTES, "bytes of names")?;
        below(trace.slices.len(), self.max_slices, "slices")
    }

    /// Counts unpacked bytes against the limit for all compressed parts.
    pub(crate) fn unpack(&mut self, bytes: usize) -> Result<(), Fault> {
        let left = self.max_unpacked_bytes.checked_sub(bytes as u64);
        self.max_unpacked_bytes = left.ok_or(Fault::TooBig {
            limit: self.max_unpacked_bytes as usize,
            what: "remaining bytes of unpacked data",
        })?;
        Ok(())
    }
}

/// Returns an error if `count` exceeds `limit`.
pub(crate) fn below(count: usize, limit: usize, what: &'static str) -> Result<(), Fault> {
    if count > limit {
        Err(Fault::TooBig { limit, what })
    } else {
        Ok(())
    }
}
