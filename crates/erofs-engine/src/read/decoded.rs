//! The decoded bytes of a pcluster.

use page_pool::PageBuf;

/// Decoded bytes of a pcluster from its beginning; possibly not all of them.
#[derive(Debug)]
pub(crate) struct Decoded(PageBuf);

impl Decoded {
    pub(crate) fn new(bytes: PageBuf) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Bytes of memory that it holds.
    pub(crate) fn memory(&self) -> usize {
        self.0.capacity()
    }
}
