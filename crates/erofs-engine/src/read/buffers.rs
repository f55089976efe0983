//! Buffers for decoded bytes, from the page pool and from the cache's memory.

use std::sync::Arc;

use page_pool::{PageBuf, PagePool};

use crate::read::claim::PclusterTable;

/// Memory for decoded bytes: the page pool and the cache's memory.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub pool: Arc<PagePool>,
    /// Memory of the cache's capacity, shared by cached pclusters and buffers in use.
    pub cache_memory: Option<Arc<PagePool>>,
}

impl Buffers {
    /// Allocates a buffer of `bytes` bytes: from the pool's reserve, else from the cache's memory
    /// (for which older pclusters of `table` are dropped), else from the system. `None` if out of
    /// memory.
    pub(crate) fn alloc(&self, table: &PclusterTable, bytes: usize) -> Option<PageBuf> {
        self.cache_memory
            .as_ref()
            .and_then(|memory| {
                let pool = self.pool.alloc_reserved(bytes);
                pool.or_else(|| displace_for(table, memory, bytes))
            })
            .or_else(|| self.pool.alloc(bytes))
    }
}

/// A buffer from the cache's memory, for which older pclusters are dropped.
fn displace_for(table: &PclusterTable, memory: &Arc<PagePool>, bytes: usize) -> Option<PageBuf> {
    if bytes as u64 > table.capacity() {
        return None;
    }
    loop {
        let buffer = memory.alloc_reserved(bytes);
        if buffer.is_some() || !table.displace_oldest() {
            return buffer;
        }
    }
}
