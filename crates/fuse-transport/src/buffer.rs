//! Buffers aligned to pages, touched only where they are used.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment of buffers: a page of most machines.
const PAGE: usize = 4096;

#[repr(C, align(4096))]
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
struct Page([u8; PAGE]);

/// A zeroed buffer. Big ones come straight from the system, which maps a page when it is first
/// written to: a megabyte that serves 4 KiB reads costs 4 KiB.
pub(crate) struct Buffer(Vec<Page>);

impl Buffer {
    /// At least `bytes` bytes; `None` when there is no memory.
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        Page::new_vec_zeroed(bytes.div_ceil(PAGE)).ok().map(Self)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_slice().as_bytes()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_slice().as_mut_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_on_a_page() {
        let mut buffer = Buffer::new(5000).unwrap();
        assert_eq!(buffer.bytes().len(), 2 * PAGE);
        assert_eq!(buffer.bytes().as_ptr() as usize % PAGE, 0);
        buffer.bytes_mut()[4999] = 7;
        assert_eq!(buffer.bytes()[4999], 7);
    }
}
