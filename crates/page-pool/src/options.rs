//! Options of a pool.

/// Bytes in a page of the pool, whatever the page size of the machine is.
pub const PAGE_SIZE: usize = 4096;

/// Options of [`PagePool::new`](crate::PagePool::new).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PoolOptions {
    /// Pages of 4 KiB kept ready; 0 means no pool: all memory comes from the system.
    pub reserved_pages: usize,
    /// Touch all pages at the start instead of at their first use.
    pub prefill: bool,
    /// Lock the pages in memory where allowed; a refusal is a notice, not an error.
    pub lock: bool,
    /// Measure every allocation; see [`PoolStats::times`](crate::PoolStats::times).
    #[cfg(feature = "experiments")]
    pub measure: bool,
}
