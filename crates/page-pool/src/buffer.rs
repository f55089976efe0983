//! An owned buffer.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sys::memory::Run;

use crate::PagePool;

/// Where a buffer's pages came from, and so where they go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Arena,
    System,
}

/// A contiguous buffer of whole pages; dropping it gives them back. Its contents are unspecified
/// until written.
pub struct PageBuf {
    /// None only inside of `drop`.
    run: Option<Run>,
    length: usize,
    origin: Origin,
    pool: Arc<PagePool>,
}

impl PageBuf {
    pub(crate) fn new(run: Run, length: usize, origin: Origin, pool: Arc<PagePool>) -> Self {
        PageBuf {
            run: Some(run),
            length,
            origin,
            pool,
        }
    }

    /// Bytes that fit without another allocation: the length rounded up to whole pages, or more
    /// where a request-local list supplied a larger buffer.
    pub fn capacity(&self) -> usize {
        self.run.as_deref().map_or(0, <[u8]>::len)
    }

    /// Changes the length.
    ///
    /// # Panics
    /// When it exceeds [`capacity`](Self::capacity).
    pub fn resize(&mut self, length: usize) {
        assert!(
            length <= self.capacity(),
            "{length} bytes in {}",
            self.capacity()
        );
        self.length = length;
    }

    pub(crate) fn belongs_to(&self, pool: &Arc<PagePool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }
}

impl Deref for PageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.run
            .as_deref()
            .map_or(&[], |bytes| &bytes[..self.length])
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.run
            .as_deref_mut()
            .map_or(&mut [], |bytes| &mut bytes[..self.length])
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.pool.release(run, self.origin);
        }
    }
}

impl fmt::Debug for PageBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PageBuf({} bytes in {:?} of {:?})",
            self.length, self.run, self.origin
        )
    }
}
