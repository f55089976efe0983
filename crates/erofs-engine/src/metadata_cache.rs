//! A cache of metadata: on-disk structures are small and close to each other.

use std::io;
use std::sync::Arc;

use erofs_format::ReadAt;

use crate::budget;
use crate::read_cache::ReadCache;

/// Bytes of one cached block of metadata.
const BLOCK: u64 = 4096;
/// Longer reads bypass the cache: they are content, not structures.
const LONGEST: usize = 2 * BLOCK as usize;
/// Bytes cached in all.
const BUDGET: u64 = 1 << 20;

/// By number.
type Blocks = ReadCache<u64, Box<[u8]>>;

/// A device or the metabox, with the blocks read last cached.
#[derive(Debug)]
pub(crate) struct MetadataCache {
    device: Arc<dyn ReadAt>,
    blocks: Blocks,
}

impl MetadataCache {
    pub(crate) fn new(device: Arc<dyn ReadAt>) -> Self {
        Self {
            device,
            blocks: ReadCache::new(BUDGET, BLOCK),
        }
    }

    /// Copies from the block around `offset`; returns how many bytes.
    fn copy(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        let (index, from) = (offset / BLOCK, offset % BLOCK);
        if let Some(block) = self.blocks.get(&index) {
            return copy_from(&block, from, out);
        }
        let start = index * BLOCK;
        let length = BLOCK.min(self.device.size().saturating_sub(start));
        let mut bytes = vec![0; length as usize].into_boxed_slice();
        self.device.read_exact_at(&mut bytes, start)?;
        let copied = copy_from(&bytes, from, out);
        self.blocks.put(index, bytes, BLOCK);
        copied
    }
}

/// Copies what `window` has from byte `from` on; an error if that is nothing.
pub(crate) fn copy_from(window: &[u8], from: u64, out: &mut [u8]) -> io::Result<usize> {
    let rest = usize::try_from(from)
        .ok()
        .and_then(|from| window.get(from..));
    let rest = rest.filter(|rest| !rest.is_empty());
    let rest = rest.ok_or(io::ErrorKind::UnexpectedEof)?;
    let count = out.len().min(rest.len());
    out[..count].copy_from_slice(&rest[..count]);
    Ok(count)
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
            let count = self.copy(rest, position)?;
            position += count as u64;
            rest = &mut rest[count..];
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.device.size()
    }
}
