//! What a caller may choose.

/// Bytes in a page of the pool, whatever the page size of the machine is.
pub const PAGE_SIZE: usize = 4096;

/// Whether an allocation may stall its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The caller waits as long as the system needs to find memory: a reader who wants the bytes.
    May,
    /// Better no buffer than a stall: read-ahead. See [`PagePool::alloc`](crate::PagePool::alloc).
    Never,
}

/// How a [`PagePool`](crate::PagePool) is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolOptions {
    /// Pages of 4 KiB kept ready; 0 means no pool: all memory comes from the system.
    pub reserved_pages: usize,
    /// Touch all pages at the start instead of at their first use.
    pub prefill: bool,
    /// Lock the pages in memory where that is allowed; a refusal is a notice, not an error.
    pub lock: bool,
    /// Pages beyond the ready ones that callers who never wait may cause to be in use.
    pub nowait_limit_pages: usize,
    /// Each thread keeps the largest buffer from outside of the reserve that it gave back.
    pub thread_buffers: bool,
    /// Measure every allocation; see [`PoolStats::times`](crate::PoolStats::times).
    pub measure: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions {
            reserved_pages: 0,
            prefill: false,
            lock: false,
            // 8 MiB: read-ahead of two CPUs at full depth, and half of the 16 MiB that the whole
            // program may hold beside its cache.
            nowait_limit_pages: 2048,
            thread_buffers: false,
            measure: false,
        }
    }
}
