//! Settings of an image's compressed streams.

use std::fmt;

/// The smallest dictionary that an EROFS image may declare for MicroLZMA, in bytes.
pub const LZMA_DICTIONARY_MIN: u32 = 4096;
/// The largest dictionary that an EROFS image may declare for MicroLZMA, in bytes: eight times the
/// largest pcluster.
pub const LZMA_DICTIONARY_MAX: u32 = 8 << 20;
/// Binary logarithm of the largest Zstandard window that an EROFS image may declare: the size of
/// the largest pcluster, 1 MiB.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 20;

/// A compression format of EROFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// An LZ4 block (no frame).
    Lz4,
    /// MicroLZMA: raw LZMA whose first byte holds the inverted properties.
    Lzma,
    /// Raw DEFLATE (RFC 1951) without header or checksum.
    Deflate,
    /// One Zstandard frame (RFC 8878).
    Zstd,
}

impl Codec {
    /// All codecs, in the order of their numbers in the image.
    pub const ALL: [Codec; 4] = [Codec::Lz4, Codec::Lzma, Codec::Deflate, Codec::Zstd];

    /// The name that users know from `mkfs.erofs`.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::Lz4 => "lz4",
            Codec::Lzma => "lzma",
            Codec::Deflate => "deflate",
            Codec::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Settings of an image's streams. The defaults are the maxima of the format.
///
/// Two fields of the image are deliberately missing: the LZ4 distance and the DEFLATE window limit
/// the memory of readers that decode piece by piece. The decoders of this crate have the whole
/// output in memory, so the full windows (64 KiB and 32 KiB) cost them nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes in a block of the image: padding is shorter than this.
    pub block_size: u32,
    /// Whether LZ4 streams are padded at the front (the 0padding feature of the superblock).
    pub lz4_zero_padding: bool,
    /// Dictionary of MicroLZMA streams in bytes; a value over [`LZMA_DICTIONARY_MAX`] is refused at
    /// the first use.
    pub lzma_dictionary: u32,
    /// Binary logarithm of the largest Zstandard window; a value over [`ZSTD_WINDOW_LOG_MAX`] is
    /// refused at the first use.
    pub zstd_window_log: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            block_size: 4096,
            lz4_zero_padding: true,
            lzma_dictionary: LZMA_DICTIONARY_MAX,
            zstd_window_log: ZSTD_WINDOW_LOG_MAX,
        }
    }
}
