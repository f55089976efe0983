//! An owned buffer of whole pages.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sys::memory::Run;

/// Where a buffer's pages come from and return to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Arena,
    System,
}

/// Receives the pages of a dropped buffer.
pub(crate) trait Release: Send + Sync {
    fn release(&self, run: Run, origin: Origin);
}

/// A contiguous buffer of whole pages, returned to the pool when dropped. Its contents are
/// unspecified until written.
pub struct PageBuf {
    /// The pages; `None` only inside `drop`.
    run: Option<Run>,
    length: usize,
    origin: Origin,
    pool: Arc<dyn Release>,
}

impl PageBuf {
    pub(crate) fn new(run: Run, length: usize, origin: Origin, pool: Arc<dyn Release>) -> Self {
        PageBuf {
            run: Some(run),
            length,
            origin,
            pool,
        }
    }

    /// Bytes in the buffer's pages: the length rounded up to whole pages.
    pub fn capacity(&self) -> usize {
        self.run.as_deref().map_or(0, <[u8]>::len)
    }

    /// Changes the length.
    ///
    /// # Panics
    /// `length` exceeds [`capacity`](Self::capacity).
    pub fn resize(&mut self, length: usize) {
        assert!(
            length <= self.capacity(),
            "{length} bytes in {}",
            self.capacity()
        );
        self.length = length;
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
