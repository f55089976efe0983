//! Chunk-based inodes: a table of block addresses, one for each chunk of equal size.
//!
//! See `EROFS_CHUNK_FORMAT_*` in fs/erofs/erofs_fs.h and `erofs_map_blocks` in fs/erofs/data.c.

use super::plain;
use crate::meta::{Window, structure, word};
use crate::raw::RawChunkIndex;
use crate::{DataLayout, Extent, ExtentKind, Inode, Reader, Result, Superblock};

/// Bits of the chunk format: binary logarithm of the number of blocks in a chunk.
const BLOCK_BITS: u32 = 0x1f;
/// The table has 8-byte indexes instead of 4-byte addresses.
const INDEXES: u32 = 0x20;
/// Addresses in indexes have 48 bits.
const WIDE: u32 = 0x40;
/// The lower half of the union is the chunk format; the upper half is reserved.
const FORMAT: u32 = 0xffff;

/// Maximum number of chunks joined into one extent, which bounds the work of one call.
const JOIN: u64 = 256;

impl Inode {
    /// Bytes in a chunk; `None` if the inode has no chunks.
    pub fn chunk_size(&self, superblock: &Superblock) -> Option<u64> {
        let bits = u32::from(superblock.block_bits) + (self.union_bits & BLOCK_BITS);
        (self.layout() == DataLayout::ChunkBased).then_some(1 << bits)
    }
}

/// The chunk table of an inode.
struct Table<'a> {
    window: Window<'a>,
    start: u64,
    indexes: bool,
    wide: bool,
    device_mask: u16,
}

/// Location of a chunk: a device (0 for the unified address space) and a block on it, or `None` for
/// a hole.
type Chunk = Option<(u16, u64)>;

impl Table<'_> {
    fn chunk(&mut self, number: u64) -> Result<Chunk> {
        let entry_size = if self.indexes { 8 } else { 4 };
        let offset = number.checked_mul(entry_size);
        let Some(offset) = offset.and_then(|offset| offset.checked_add(self.start)) else {
            return corrupted!("chunk {number} has no index");
        };
        let bytes = self.window.get(offset, entry_size as usize)?;
        if self.indexes {
            let raw = structure(bytes);
            return Ok(self.parse(&raw));
        }
        let block = word(bytes, 0);
        Ok((block != u32::MAX).then_some((0, block.into())))
    }

    fn parse(&self, raw: &RawChunkIndex) -> Chunk {
        let mask = (1 << if self.wide { 48 } else { 32 }) - 1;
        let high = u64::from(raw.startblk_hi.get()) << 32;
        let block = (high | u64::from(raw.startblk_lo.get())) & mask;
        (block != mask).then_some((raw.device_id.get() & self.device_mask, block))
    }
}

pub(super) fn map(image: Reader<'_>, inode: &Inode, offset: u64) -> Result<Extent> {
    let format = inode.union_bits & FORMAT;
    let indexes = format & INDEXES != 0;
    let chunk_bits = u32::from(image.superblock().block_bits) + (format & BLOCK_BITS);
    let mut table = Table {
        window: Window::new(image.meta_of(inode)?),
        start: inode.body().next_multiple_of(if indexes { 8 } else { 4 }),
        indexes,
        wide: format & WIDE != 0,
        device_mask: image.devices.id_mask(),
    };
    let number = offset >> chunk_bits;
    let chunk = table.chunk(number)?;
    let chunk_blocks = 1u64 << (format & BLOCK_BITS);
    let last = (inode.size - 1) >> chunk_bits;
    let joined = join(&mut table, number, chunk, chunk_blocks, last);
    let logical = number << chunk_bits;
    // Cannot overflow: at most 2^8 chunks of 2^47 bytes are joined.
    let length = (joined << chunk_bits).min(inode.size - logical);
    match chunk {
        Some(start) => plain::extent(image, inode, offset, logical..logical + length, start),
        None => Ok(Extent::new(logical, length, ExtentKind::Hole)),
    }
}

/// How many chunks from `number` on are consecutive on their device (or are all holes). Stops
/// before a chunk whose index cannot be read; mapping that chunk reports the error.
fn join(table: &mut Table<'_>, number: u64, first: Chunk, chunk_blocks: u64, last: u64) -> u64 {
    let mut count = 1;
    while count < JOIN && number + count <= last {
        let expected =
            first.map(|(device, block)| (device, block.wrapping_add(count * chunk_blocks)));
        match table.chunk(number + count) {
            Ok(chunk) if chunk == expected => count += 1,
            _ => break,
        }
    }
    count
}
