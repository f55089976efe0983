//! Extents: where the bytes of a file are stored.

use crate::Algorithm;

/// A piece of a file and where its bytes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First byte of the file that the extent supplies.
    pub logical: u64,
    /// Number of bytes that the extent supplies: never 0, and never past the end of the file.
    pub length: u64,
    /// Where these bytes are stored.
    pub kind: ExtentKind,
}

impl Extent {
    pub(crate) fn new(logical: u64, length: u64, kind: ExtentKind) -> Self {
        Self {
            logical,
            length,
            kind,
        }
    }

    /// First byte of the file after the extent.
    pub fn end(&self) -> u64 {
        self.logical + self.length
    }

    /// Where the stored bytes are; `None` for a hole, and for a fragment, which is stored as a part
    /// of the packed inode.
    pub fn location(&self) -> Option<Location> {
        let (device, metabox, physical) = match self.kind {
            ExtentKind::Hole | ExtentKind::Fragment { .. } => return None,
            ExtentKind::Raw { device, physical } => (device, false, physical),
            ExtentKind::Meta { metabox, physical } => (0, metabox, physical),
            ExtentKind::Compressed(pcluster) => return Some(pcluster.location),
        };
        Some(Location {
            device,
            metabox,
            physical,
        })
    }

    /// Number of bytes stored at its location.
    pub fn stored(&self) -> u64 {
        match &self.kind {
            ExtentKind::Hole | ExtentKind::Fragment { .. } => 0,
            ExtentKind::Raw { .. } | ExtentKind::Meta { .. } => self.length,
            ExtentKind::Compressed(pcluster) => pcluster.length.into(),
        }
    }
}

/// The location of the bytes of an [`Extent`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExtentKind {
    /// Nowhere: they are zeros.
    Hole,
    /// Uncompressed bytes on a device: byte `logical + k` of the file is byte `physical + k` of the
    /// device. The whole extent is inside the device.
    Raw {
        /// Number of the device; 0 is the image.
        device: u16,
        /// Byte offset on that device.
        physical: u64,
    },
    /// Uncompressed bytes in metadata (the inline tail): on the primary device, or in the metabox.
    Meta {
        /// Whether the bytes are in the metabox.
        metabox: bool,
        /// Byte offset on the primary device, or in the decoded metabox.
        physical: u64,
    },
    /// One pcluster, decoded from its beginning.
    Compressed(Pcluster),
    /// Bytes of the packed inode. If this crate knows the size of the packed inode (see
    /// [`crate::Source`]), the bytes are within it; otherwise the code that reads the packed inode
    /// must check this.
    Fragment {
        /// Offset of the byte `logical` in the decoded packed inode.
        offset: u64,
    },
}

/// The location of an extent's stored bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// Number of the device; 0 is the image, and is also used if `metabox` is true.
    pub device: u16,
    /// Whether the bytes are in the decoded metabox (tail packing of an inode that is stored
    /// there).
    pub metabox: bool,
    /// Byte offset, not always a multiple of the block size.
    pub physical: u64,
}

impl Location {
    /// A location on a device.
    pub fn on_device(device: u16, physical: u64) -> Self {
        Self {
            device,
            metabox: false,
            physical,
        }
    }
}

/// One compressed extent: its stored bytes decode to `decoded_length` bytes that begin at
/// [`Extent::logical`]. Extents always start at decoded offset 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pcluster {
    /// Where the stored bytes are. All of them are within the device.
    pub location: Location,
    /// Stored bytes to read: at most 1 MiB; for block-based pclusters a multiple of the block size,
    /// including padding (in front with `ZERO_PADDING`, otherwise at the end).
    pub length: u32,
    /// How the stored bytes are encoded.
    pub coding: Coding,
    /// Bytes to decode: the length of the extent, at most 12 MiB.
    pub decoded_length: u64,
    /// Whether the stream may decode to more than `decoded_length` bytes, so that the decoder has
    /// to stop there. If not, it decodes to exactly that many.
    pub partial: bool,
    /// Whether the tail is packed: the stored bytes are in metadata, not on a block boundary, and
    /// `length` is exact.
    pub inline: bool,
}

/// How the bytes of a pcluster are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Coding {
    /// Compressed with this algorithm.
    Compressed(Algorithm),
    /// Uncompressed, in order.
    Shifted,
    /// Uncompressed and rotated, so that most bytes keep their place within a block: byte `k` of
    /// the extent is at [`interlaced_offset`] of the stored bytes, which are whole blocks.
    Interlaced,
}

/// Where byte `k` of an interlaced extent is within its `length` stored bytes.
///
/// The extent's bytes up to the next block boundary of the FILE are at the end of the last stored
/// block; all others follow from the beginning of the stored bytes (`z_erofs_transform_plain` of
/// fs/erofs/decompressor.c).
pub fn interlaced_offset(logical: u64, k: u64, block_size: u64, length: u64) -> u64 {
    let head = block_size - logical % block_size;
    if k < head {
        length - head + k
    } else {
        k - head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interlaced_bytes_keep_their_place_within_one_block() {
        let at = |k| interlaced_offset(3 * 4096 + 100, k, 4096, 4096);
        assert_eq!(
            [at(0), at(1), at(3995), at(3996), at(4095)],
            [100, 101, 4095, 0, 99]
        );
    }

    #[test]
    fn an_interlaced_extent_at_a_block_boundary_is_not_rotated() {
        assert_eq!(interlaced_offset(8192, 77, 4096, 4096), 77);
    }

    #[test]
    fn of_several_blocks_the_last_one_has_the_beginning() {
        let at = |k| interlaced_offset(100, k, 512, 1024);
        assert_eq!([at(0), at(411), at(412), at(1023)], [612, 1023, 0, 611]);
    }
}
