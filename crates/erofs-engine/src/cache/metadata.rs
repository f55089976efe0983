//! A cache of metadata in blocks, because on-disk structures are small and close together.

use std::io;

use erofs_format::ReadAt;

use crate::cache::windows::Windows;

/// Bytes of one cached block of metadata.
const BLOCK: u64 = 4096;
/// Maximum length of a cached read; longer reads are content, not structures.
const LONGEST: usize = 2 * BLOCK as usize;
/// Bytes cached in total.
const CAPACITY: u64 = 1 << 20;
/// Minimum number of bytes cached for each image, even if the images then exceed the total.
const LEAST: u64 = 64 << 10;

/// The most recently read blocks of a device or of the metabox, by number.
#[derive(Debug)]
pub(crate) struct MetadataCache(Windows<u64>);

impl MetadataCache {
    /// Creates the cache for one of `count` images.
    pub(crate) fn of_images(count: usize) -> Self {
        let share = CAPACITY / count.max(1) as u64;
        Self(Windows::new(share.max(LEAST), BLOCK))
    }

    /// Fills `buf` from byte `offset` of `source`, whose blocks this cache holds.
    pub(crate) fn read(&self, source: &dyn ReadAt, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if buf.len() > LONGEST || end.is_none_or(|end| end > source.size()) {
            return source.read_exact_at(buf, offset);
        }
        let mut position = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let count = (self.0).copy(source, |number| number, BLOCK, position, rest)?;
            position += count as u64;
            rest = &mut rest[count..];
        }
        Ok(())
    }
}
