//! The page that a pcluster shares with the next one.
//!
//! Pclusters end in the middle of pages. Such a page can only be stored together with the first
//! bytes of the next pcluster. Otherwise, the read that requests the page later would have to
//! decode both pclusters again.

use erofs_format::{Algorithm, Coding, ExtentKind, Pcluster};

use crate::read::FileReader;
use crate::read::segment::Segment;

/// Assumed page size, the same as when pages are stored.
const PAGE: u64 = 4096;

impl FileReader<'_> {
    /// Whether the segment needs a page that is entirely within its pcluster. If not, the pages
    /// around the segment were most likely stored by an earlier read.
    pub(crate) fn has_own_page(&self, segment: &Segment<'_>) -> bool {
        let end = segment.logical + segment.pcluster.decoded_length;
        let own_end = match end >= self.inode.size {
            true => self.inode.size,
            false => end - end % PAGE,
        };
        let own = segment.logical.next_multiple_of(PAGE)..own_end;
        let from = segment.logical + segment.from as u64;
        let to = segment.logical + segment.to() as u64;
        from.max(own.start) < to.min(own.end)
    }

    /// The pcluster after that of `segment`, and how many of its bytes fill the page that the two
    /// share. `None` if the reader itself receives that page, or if those bytes would cost too
    /// much.
    pub(crate) fn shared_with_next(&self, segment: &Segment<'_>) -> Option<(Pcluster, usize)> {
        let end = segment.logical + segment.pcluster.decoded_length;
        let page_end = end.next_multiple_of(PAGE).min(self.inode.size);
        let bytes = page_end.checked_sub(end).filter(|&bytes| bytes > 0)?;
        if segment.to() as u64 == segment.pcluster.decoded_length {
            return None;
        }
        let next = self.with_image(|image| image.map(self.inode, end)).ok()?;
        match next.kind {
            ExtentKind::Compressed(pcluster)
                if next.logical == end
                    && pcluster.coding == Coding::Compressed(Algorithm::Lz4)
                    && pcluster.decoded_length >= bytes =>
            {
                Some((pcluster, bytes as usize))
            }
            _ => None,
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
