//! Options of a page pool.

/// Size of a page of the pool in bytes, whatever the machine's page size is.
pub const PAGE_SIZE: usize = 4096;

/// Options of [`PagePool::new`](crate::PagePool::new).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PoolOptions {
    /// Number of 4 KiB pages kept ready; with 0 there is no pool, and all memory comes from the
    /// system.
    pub reserved_pages: usize,
    /// Touch all pages at the start instead of on first use.
    pub prefill: bool,
    /// Lock the pages in memory if allowed; a refusal causes a notice, not an error.
    pub lock: bool,
    /// Measure every allocation; see [`PoolStats::times`](crate::PoolStats::times).
    #[cfg(feature = "experiments")]
    pub measure: bool,
}
