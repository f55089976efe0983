//! Maps bytes of a file to their storage: pure lookups in metadata.
//!
//! There is one file for each uncompressed layout ([`flat`], [`chunk`]). For compressed data there
//! are the map header ([`zheader`]), encoded extents ([`zextents`]), and the search in an index of
//! lclusters ([`zindex`]), whose entries have 8 bytes ([`zfull`]) or are packed ([`zcompact`]).

mod chunk;
mod flat;
mod pcluster;
mod plain;
mod zcompact;
mod zextents;
mod zfull;
mod zheader;
mod zindex;

#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::{DataLayout, Extent, Inode, Reader, Result};

/// Iterator over the extents of a file, each with the part of the requested range that it contains.
/// The iterator ends after an error.
#[derive(Clone, Debug)]
pub struct Extents<'a> {
    image: Reader<'a>,
    inode: &'a Inode,
    rest: Range<u64>,
}

impl Iterator for Extents<'_> {
    type Item = Result<(Range<u64>, Extent)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let extent = self.image.map(self.inode, self.rest.start);
        let end = extent.as_ref().map_or(self.rest.end, Extent::end);
        let part = self.rest.start..end.min(self.rest.end);
        self.rest.start = part.end;
        Some(extent.map(|extent| (part, extent)))
    }
}

impl Reader<'_> {
    /// The extents that contain bytes of `range` of the inode, one after another.
    pub fn extents<'e>(&'e self, inode: &'e Inode, range: Range<u64>) -> Extents<'e> {
        Extents {
            image: *self,
            inode,
            rest: range,
        }
    }

    /// The extent that contains byte `offset` of the inode; `offset` must be below its size. Makes
    /// only small reads and no allocation that depends on the image, and every walk is bounded.
    ///
    /// Uncompressed extents end where the device ends, so that the existing part of a file can be
    /// read even if the file claims to be longer; mapping the rest is an error.
    pub fn map(&self, inode: &Inode, offset: u64) -> Result<Extent> {
        let (nid, size) = (inode.own_nid(), inode.size);
        if offset >= size || !inode.file_type().has_data() {
            return corrupted!(
                "byte {offset} of nid {nid:#x}, a {:?} of {size} bytes, is not mapped",
                inode.file_type()
            );
        }
        let extent = match inode.layout() {
            DataLayout::FlatPlain | DataLayout::FlatInline => flat::map(*self, inode, offset),
            DataLayout::ChunkBased => chunk::map(*self, inode, offset),
            DataLayout::CompressedFull | DataLayout::CompressedCompact => {
                zheader::map(*self, inode, offset)
            }
        }?;
        // An index whose forward and backward distances contradict each other is also rejected
        // here.
        if offset < extent.logical || extent.end() <= offset || extent.end() > size {
            return corrupted!(
                "byte {offset} of nid {nid:#x} ({size} bytes) is mapped to the extent from {} to \
                 {}",
                extent.logical,
                extent.end()
            );
        }
        Ok(extent)
    }

    /// The first offset, if any, where a lookup finds a different extent than a lookup at an
    /// earlier offset, because an index entry in the middle of an extent contradicts the entries at
    /// its ends. Readers do not examine every entry, so the bytes that they return depend on the
    /// offset at which they start. This method examines every entry; it is meant for tools that
    /// check images.
    pub fn contradiction(&self, inode: &Inode) -> Option<u64> {
        match inode.layout() {
            DataLayout::CompressedFull | DataLayout::CompressedCompact if inode.size > 0 => {
                zheader::contradiction(*self, inode)
            }
            _ => None,
        }
    }

    /// Whether the inode has a hole. The length of its index is subtracted from `entries`, the
    /// number of entries that may still be read. `None` if the answer is not known, because the
    /// index has more than `entries` entries, or the inode has chunks or encoded extents or is
    /// damaged.
    pub fn has_holes(&self, inode: &Inode, entries: &mut u64) -> Option<bool> {
        if inode.size == 0 || !inode.file_type().has_data() {
            return Some(false);
        }
        match inode.layout() {
            DataLayout::FlatPlain | DataLayout::FlatInline => Some(inode.start_block.is_none()),
            DataLayout::ChunkBased => None,
            DataLayout::CompressedFull | DataLayout::CompressedCompact => {
                zheader::has_holes(*self, inode, entries)
            }
        }
    }
}
