//! The request-local list in front of the pool.

use std::sync::Arc;

use crate::{PageBuf, PagePool, Wait};

/// Buffers that one request uses again and again; they go back to the pool when it ends.
#[derive(Debug)]
pub struct RequestPages {}

impl RequestPages {
    /// An empty list.
    pub fn new(_pool: &Arc<PagePool>, _wait: Wait) -> Self {
        todo!()
    }
    /// A buffer from the list, else from the pool, else from the system.
    pub fn alloc(&mut self, _bytes: usize) -> Option<PageBuf> {
        todo!()
    }
    /// Keeps a buffer for the next `alloc` of this request.
    pub fn recycle(&mut self, _buffer: PageBuf) {
        todo!()
    }
    /// Lifts (or lowers) the patience: a reader who joined read-ahead waits for its bytes.
    pub fn set_wait(&mut self, _wait: Wait) {
        todo!()
    }
}
