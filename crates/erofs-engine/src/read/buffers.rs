//! Buffers for decoded bytes, from the page pool and from the cache's memory.

use std::sync::Arc;

use page_pool::{PageBuf, PagePool};

use crate::read::Common;

impl Common {
    /// Allocates a buffer of `bytes` bytes: from the pool's reserve, else from the cache's memory
    /// (for which older pclusters are dropped), else from the system. `None` if out of memory.
    pub(super) fn alloc(&self, bytes: usize) -> Option<PageBuf> {
        let reserved = self.cache_memory.as_ref().and_then(|memory| {
            let pool = self.pool.alloc_reserved(bytes);
            pool.or_else(|| self.displace_for(memory, bytes))
        });
        reserved.or_else(|| self.pool.alloc(bytes))
    }

    /// A buffer from the cache's memory, for which older pclusters are dropped.
    fn displace_for(&self, memory: &Arc<PagePool>, bytes: usize) -> Option<PageBuf> {
        if bytes as u64 > self.table.capacity() {
            return None;
        }
        loop {
            let buffer = memory.alloc_reserved(bytes);
            if buffer.is_some() || !self.table.displace_oldest() {
                return buffer;
            }
        }
    }
}
