//! What the pool tells about itself.

use crate::AllocationTimes;

/// Counters of a [`PagePool`](crate::PagePool) since its start.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PoolStats {
    /// The limit: pages of the arena.
    pub reserved_pages: usize,
    /// Pages of the arena that nobody holds.
    pub free_pages: usize,
    /// Those of them that have been touched: ready.
    pub ready_pages: usize,
    /// The arena is locked in memory.
    pub locked: bool,
    /// Requests served from ready pages alone.
    pub hits: u64,
    /// Requests that needed the system for at least one page.
    pub misses: u64,
    /// Requests served from a request-local list; in neither of the above.
    pub local_hits: u64,
    /// Pages of the requests that were served ready.
    pub hit_pages: u64,
    /// Pages that the system had to supply: first touches of the arena, and all pages from outside of it.
    pub missed_pages: u64,
    /// Requests that never wait and got nothing.
    pub refused: u64,
    /// Requests that waited for the system and got nothing: it is out of address space.
    pub failed: u64,
    /// Pages in use now, request-local lists included.
    pub in_use_pages: usize,
    /// The most at once.
    pub peak_in_use_pages: usize,
    /// In 95 % of the requests not more pages than this were in use, the new ones included.
    pub in_use_p95_pages: usize,
    /// The same for the size of a single request.
    pub request_p95_pages: usize,
    /// Pages that threads keep in buffers of their own.
    pub thread_pages: usize,
    /// What allocations took, where that was asked for.
    pub times: Option<AllocationTimes>,
}
