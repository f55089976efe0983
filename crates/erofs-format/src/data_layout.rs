//! How the data of an inode is laid out, as its `i_format` and `i_u` state.

use crate::{Nid, Result};

/// `i_format`: all defined bits.
const KNOWN_FORMAT: u16 = (1 << 5) - 1;
/// Chunk formats: all defined bits (`EROFS_CHUNK_FORMAT_ALL`).
const KNOWN_CHUNK_FORMAT: u32 = 0x7f;
/// The lower half of `i_u` is the chunk format; the upper half is reserved.
const CHUNK_FORMAT: u32 = 0xffff;

/// How the data of an inode is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DataLayout {
    /// Consecutive blocks.
    FlatPlain,
    /// Compressed, with 8-byte indexes or encoded extents.
    CompressedFull,
    /// Consecutive blocks, with the tail stored after the inode.
    FlatInline,
    /// Compressed, with indexes of 4 and 2 bytes.
    CompressedCompact,
    /// Chunks of equal size, each stored anywhere.
    ChunkBased,
}

impl DataLayout {
    /// Whether the data is compressed (or a fragment).
    pub(crate) fn is_compressed(self) -> bool {
        matches!(self, Self::CompressedFull | Self::CompressedCompact)
    }
}

/// The layout that `i_format` states.
pub(crate) fn layout(format: u16, nid: Nid) -> Result<DataLayout> {
    if format & !KNOWN_FORMAT != 0 {
        return unsupported!("i_format {format:#x} of nid {nid:#x}");
    }
    Ok(match (format >> 1) & 7 {
        0 => DataLayout::FlatPlain,
        1 => DataLayout::CompressedFull,
        2 => DataLayout::FlatInline,
        3 => DataLayout::CompressedCompact,
        4 => DataLayout::ChunkBased,
        other => return unsupported!("data layout {other} of nid {nid:#x}"),
    })
}

/// Rejects chunk formats with unknown bits.
pub(crate) fn check_chunk_format(nid: Nid, union_bits: u32) -> Result<()> {
    let format = union_bits & CHUNK_FORMAT;
    if format & !KNOWN_CHUNK_FORMAT != 0 {
        return unsupported!("chunk format {format:#x} of nid {nid:#x}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn formats_with_unknown_bits_are_refused() {
        assert!(check_chunk_format(1, 0x7f).is_ok());
        // The reserved half is ignored.
        assert!(check_chunk_format(1, 0x5_0020).is_ok());
        assert!(matches!(
            check_chunk_format(1, 0x80),
            Err(Error::Unsupported { .. })
        ));
    }
}
