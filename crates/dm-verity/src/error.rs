//! Errors. Each is one line that names the mismatched block or the wrong field.

use std::io;

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a tree cannot be used or a block cannot be trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The superblock or the parameters are inconsistent or not supported.
    #[error("{0}")]
    Format(String),
    /// The root hash is not valid hexadecimal.
    #[error("root hash: {0}")]
    RootHash(String),
    /// A required signature of the root hash is missing or invalid, or its signer is not trusted.
    #[error("signature: {0}")]
    Signature(String),
    /// A block does not match its hash in the tree.
    #[error("{0}")]
    Mismatch(#[from] Mismatch),
    /// The hash area cannot be read.
    #[error("hash area at byte {offset}: {source}")]
    Read {
        /// Offset of the failed read on the hash device, in bytes.
        offset: u64,
        /// The error that the system returned.
        source: io::Error,
    },
}

impl Error {
    /// An `Err` with [`Error::Format`].
    pub(crate) fn format<T>(what: String) -> Result<T> {
        Err(Error::Format(what))
    }

    /// An `Err` with [`Error::Signature`].
    pub(crate) fn signature<T>(what: String) -> Result<T> {
        Err(Error::Signature(what))
    }
}

/// A block that does not match its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// A block of the data device.
    #[error("data block {block} (at byte {offset}) does not match its hash")]
    Data {
        /// Number of the block.
        block: u64,
        /// Offset of the block on the data device, in bytes.
        offset: u64,
    },
    /// A block of the hash tree other than the first.
    #[error(
        "hash block {block} of level {level} (at byte {offset} of the hash device) does not match \
         its hash"
    )]
    Hash {
        /// Level of the block. Level 0 holds the hashes of data blocks.
        level: usize,
        /// Number of the block within its level.
        block: u64,
        /// Offset of the block on the hash device, in bytes.
        offset: u64,
    },
    /// The first block of the tree, or the only data block, does not match the root hash.
    #[error("the given root hash does not match the hash tree")]
    Root,
    /// The tree was made for a different number of data blocks.
    #[error("data block {last} is the last one in the superblock, but not in the hash tree")]
    Length {
        /// The last data block.
        last: u64,
    },
}
