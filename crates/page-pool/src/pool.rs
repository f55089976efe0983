//! The pool.

use std::io;
use std::sync::Arc;

use crate::{PageBuf, PoolOptions, PoolStats, Wait};

/// Pages kept ready for contiguous buffers.
#[derive(Debug)]
pub struct PagePool {}

impl PagePool {
    /// Reserves the address space; with `prefill` also the memory, all of it or none.
    pub fn new(_options: &PoolOptions) -> io::Result<Arc<PagePool>> {
        todo!()
    }
    /// A buffer of `bytes` bytes (contents unspecified), rounded up to whole pages inside.
    pub fn alloc(self: &Arc<Self>, _bytes: usize, _wait: Wait) -> Option<PageBuf> {
        todo!()
    }
    /// Counters; takes the lock for a moment.
    pub fn stats(&self) -> PoolStats {
        todo!()
    }
    /// Lines to show the user: what was refused.
    pub fn notices(&self) -> Vec<String> {
        todo!()
    }
}
