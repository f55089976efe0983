//! The request-local list in front of the pool.

use std::sync::Arc;

use crate::{PageBuf, PagePool, Wait};

/// Buffers that one request (a chain of pclusters) uses again and again without the pool's lock.
/// They go back when it is dropped: at the end of each request, so that nothing is hoarded.
#[derive(Debug)]
pub struct RequestPages {
    pool: Arc<PagePool>,
    wait: Wait,
    /// Newest at the back: its bytes are the likeliest to be in the CPU's cache.
    buffers: Vec<PageBuf>,
    hits: u64,
}

impl RequestPages {
    /// An empty list.
    pub fn new(pool: &Arc<PagePool>, wait: Wait) -> Self {
        RequestPages {
            pool: Arc::clone(pool),
            wait,
            buffers: Vec::new(),
            hits: 0,
        }
    }

    /// A buffer from the list, else from the pool, else from the system; see [`PagePool::alloc`].
    pub fn alloc(&mut self, bytes: usize) -> Option<PageBuf> {
        let found = self
            .buffers
            .iter()
            .rposition(|buffer| buffer.capacity() >= bytes);
        let Some(index) = found else {
            return self.pool.alloc(bytes, self.wait);
        };
        let mut buffer = self.buffers.remove(index);
        buffer.resize(bytes);
        self.hits += 1;
        Some(buffer)
    }

    /// Keeps a buffer for the next `alloc` of this request. One of another pool goes home instead.
    pub fn recycle(&mut self, buffer: PageBuf) {
        if buffer.belongs_to(&self.pool) {
            self.buffers.push(buffer);
        }
    }

    /// Lifts (or lowers) the patience: a reader who joins a read-ahead in flight waits for its bytes.
    pub fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }

    /// The patience now.
    pub fn wait(&self) -> Wait {
        self.wait
    }
}

impl Drop for RequestPages {
    fn drop(&mut self) {
        if self.hits > 0 {
            self.pool.count_local_hits(self.hits);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{PAGE_SIZE, PoolOptions};

    fn pool() -> Arc<PagePool> {
        PagePool::new(&PoolOptions {
            reserved_pages: 8,
            ..Default::default()
        })
        .unwrap()
    }

    #[test]
    fn a_request_uses_its_own_buffer_again() {
        let pool = pool();
        let mut request = RequestPages::new(&pool, Wait::May);
        for bytes in [2 * PAGE_SIZE, 10, PAGE_SIZE + 1] {
            let buffer = request.alloc(bytes).unwrap();
            assert_eq!(buffer.len(), bytes);
            request.recycle(buffer);
        }
        assert_eq!(pool.stats().in_use_pages, 2);
        drop(request);
        let stats = pool.stats();
        assert_eq!(
            (stats.local_hits, stats.misses, stats.in_use_pages),
            (2, 1, 0)
        );
    }

    #[test]
    fn a_larger_need_goes_to_the_pool() {
        let pool = pool();
        let mut request = RequestPages::new(&pool, Wait::May);
        let small = request.alloc(1).unwrap();
        request.recycle(small);
        assert_eq!(
            request.alloc(3 * PAGE_SIZE).unwrap().capacity(),
            3 * PAGE_SIZE
        );
        assert_eq!(pool.stats().misses, 2);
    }

    #[test]
    fn lifting_the_patience_helps_a_refused_request() {
        let options = PoolOptions {
            nowait_limit_pages: 0,
            ..Default::default()
        };
        let pool = PagePool::new(&options).unwrap();
        let mut request = RequestPages::new(&pool, Wait::Never);
        assert!(request.alloc(1).is_none());
        request.set_wait(Wait::May);
        assert!(request.alloc(1).is_some());
    }

    #[test]
    fn a_buffer_of_another_pool_goes_home() {
        let (pool, other) = (pool(), pool());
        let mut request = RequestPages::new(&pool, Wait::May);
        request.recycle(other.alloc(1, Wait::May).unwrap());
        assert_eq!(other.stats().in_use_pages, 0);
        assert!(request.buffers.is_empty());
    }
}
