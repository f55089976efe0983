//! A cache of metadata: on-disk structures are small and close to each other.

use std::io;
use std::sync::Arc;

use erofs_format::ReadAt;

use crate::cache::windows::Windows;
use crate::request::budget;

/// Bytes of one cached block of metadata.
const BLOCK: u64 = 4096;
/// Longer reads bypass the cache: they are content, not structures.
const LONGEST: usize = 2 * BLOCK as usize;
/// Bytes cached in all.
const CAPACITY: u64 = 1 << 20;

/// A device or the metabox, with the blocks read last cached.
#[derive(Debug)]
pub(crate) struct MetadataCache {
    device: Arc<dyn ReadAt>,
    /// By number.
    blocks: Windows<u64>,
}

impl MetadataCache {
    pub(crate) fn new(device: Arc<dyn ReadAt>) -> Self {
        Self {
            device,
            blocks: Windows::new(CAPACITY, BLOCK),
        }
    }
}

impl ReadAt for MetadataCache {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        budget::step().map_err(io::Error::other)?;
        let end = offset.checked_add(buf.len() as u64);
        if buf.len() > LONGEST || end.is_none_or(|end| end > self.size()) {
            return self.device.read_exact_at(buf, offset);
        }
        let mut position = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let (device, key) = (&*self.device, |number| number);
            let count = self.blocks.copy(device, key, BLOCK, position, rest)?;
            position += count as u64;
            rest = &mut rest[count..];
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.device.size()
    }
}
