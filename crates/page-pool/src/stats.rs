//! Counters of a page pool.

use serde::Serialize;

figures::figures! {
    /// Counters of a [`PagePool`](crate::PagePool) since it was created.
    #[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
    pub struct PoolStats {
        /// Number of pages in the arena.
        pub reserved_pages: usize,
        /// Free pages of the arena.
        pub free_pages: usize,
        /// Free pages whose memory is present.
        pub ready_pages: usize,
        /// Whether the arena is locked in memory.
        pub locked: bool,
        /// Buffers whose pages were all ready.
        pub hits: u64 => counter "pool_hits_total",
        /// Buffers that needed pages from the system.
        pub misses: u64 => counter "pool_misses_total",
        /// Pages that were ready when requested.
        pub hit_pages: u64,
        /// Pages supplied by the system: first touches of the arena, and pages mapped outside it.
        pub missed_pages: u64,
        /// Requests that failed because the system is out of memory or address space.
        pub failed: u64,
        /// Pages in use now.
        pub in_use_pages: usize,
        /// Maximum of the pages in use.
        pub peak_in_use_pages: usize,
        /// 95th percentile of the pages in use after a request.
        pub in_use_p95_pages: usize,
        /// 95th percentile of the pages of a request.
        pub request_p95_pages: usize,
        /// Times of the allocations, if they are measured.
        pub times: Option<crate::AllocationTimes> where feature = "experiments",
    }
}
