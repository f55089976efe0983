//! An owned buffer.

/// A contiguous buffer of whole pages; dropping it gives them back.
#[derive(Debug)]
pub struct PageBuf {}

impl std::ops::Deref for PageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        todo!()
    }
}

impl std::ops::DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        todo!()
    }
}
