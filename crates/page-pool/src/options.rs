//! Options of a pool.

/// Bytes in a page of the pool, whatever the machine's page size is.
pub const PAGE_SIZE: usize = 4096;

/// Options of [`PagePool::new`](crate::PagePool::new).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PoolOptions {
    /// Number of 4 KiB pages kept ready; 0 means no pool: all memory comes from the system.
    pub reserved_pages: usize,
    /// Touch all pages at the start instead of on first use.
    pub prefill: bool,
    /// Lock the pages in memory if allowed; a refusal leads to a notice, not an error.
    pub lock: bool,
    /// Measure every allocation; see [`PoolStats::times`](crate::PoolStats::times).
    #[cfg(feature = "experiments")]
    pub measure: bool,
}
