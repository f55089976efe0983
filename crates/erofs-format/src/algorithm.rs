//! The compression algorithms of the format.

/// A compression algorithm, with its number in `h_algorithmtype` and `available_compr_algs`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Algorithm {
    /// LZ4 block format.
    Lz4 = 0,
    /// MicroLZMA: an LZMA stream whose first byte carries the properties.
    Lzma = 1,
    /// Raw DEFLATE.
    Deflate = 2,
    /// Zstandard frames.
    Zstd = 3,
}

impl Algorithm {
    /// All algorithms, in the order of their numbers.
    pub const ALL: [Algorithm; 4] = [
        Algorithm::Lz4,
        Algorithm::Lzma,
        Algorithm::Deflate,
        Algorithm::Zstd,
    ];

    /// The algorithm with this number, if the format has one.
    pub fn from_number(number: u8) -> Option<Algorithm> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The algorithm's bit in the superblock's `available_compr_algs`.
    pub fn bit(self) -> u16 {
        1 << (self as u8)
    }

    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Lz4 => "lz4",
            Algorithm::Lzma => "lzma",
            Algorithm::Deflate => "deflate",
            Algorithm::Zstd => "zstd",
        }
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
