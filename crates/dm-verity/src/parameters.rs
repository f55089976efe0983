//! Parameters of a hash tree.

use crate::error::{Error, Result};
use crate::hash::{HashAlgorithm, HashType};

/// Smallest data or hash block, in bytes.
pub const MIN_BLOCK_SIZE: u32 = 512;
/// Largest data or hash block, in bytes (as in veritysetup; the kernel's limit is a page).
pub const MAX_BLOCK_SIZE: u32 = 512 * 1024;
/// Longest salt, in bytes.
pub const MAX_SALT: usize = 256;

/// The checked parameters of a tree: block sizes are powers of two from 512 to 512 KiB, there is at
/// least one data block, and neither data nor tree extends beyond 2^63 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub(crate) hash_type: HashType,
    pub(crate) algorithm: HashAlgorithm,
    pub(crate) data_block_size: u32,
    pub(crate) hash_block_size: u32,
    pub(crate) data_blocks: u64,
    pub(crate) salt: Vec<u8>,
    pub(crate) tree_start: u64,
}

impl Parameters {
    /// Parameters of a type 1 tree whose first block (the root) is at byte `tree_start` of the hash
    /// device: the options of `veritysetup --no-superblock`.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn new(
        algorithm: HashAlgorithm,
        data_block_size: u32,
        hash_block_size: u32,
        data_blocks: u64,
        salt: Vec<u8>,
        tree_start: u64,
    ) -> Result<Self> {
        let parameters = Self {
            hash_type: HashType::Normal,
            algorithm,
            data_block_size,
            hash_block_size,
            data_blocks,
            salt,
            tree_start,
        };
        parameters.check()?;
        Ok(parameters)
    }

    /// Returns these parameters with another hash type.
    #[must_use]
    pub fn with_hash_type(self, hash_type: HashType) -> Self {
        Self { hash_type, ..self }
    }

    /// Size of a data block in bytes.
    pub fn data_block_size(&self) -> u32 {
        self.data_block_size
    }

    /// Size of a hash block in bytes.
    pub fn hash_block_size(&self) -> u32 {
        self.hash_block_size
    }

    /// Number of bytes of the data device that the tree covers.
    pub fn data_size(&self) -> u64 {
        self.data_blocks * u64::from(self.data_block_size)
    }

    /// The hash function.
    pub fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_block_size("data", self.data_block_size)?;
        check_block_size("hash", self.hash_block_size)?;
        if self.salt.len() > MAX_SALT {
            let length = self.salt.len();
            return Error::format(format!("a salt of {length} bytes; the limit is {MAX_SALT}"));
        }
        let size = self.data_blocks.checked_mul(self.data_block_size.into());
        if self.data_blocks == 0 || size.is_none_or(|size| size > i64::MAX as u64) {
            return Error::format(format!(
                "{} data blocks of {} bytes: out of range",
                self.data_blocks, self.data_block_size
            ));
        }
        if !self.tree_start.is_multiple_of(self.hash_block_size.into()) {
            return Error::format(format!(
                "the tree starts at byte {}, which is not a multiple of the hash block size {}",
                self.tree_start, self.hash_block_size
            ));
        }
        Ok(())
    }
}

fn check_block_size(which: &str, size: u32) -> Result<()> {
    if size.is_power_of_two() && (MIN_BLOCK_SIZE..=MAX_BLOCK_SIZE).contains(&size) {
        return Ok(());
    }
    Error::format(format!(
        "{which} block size {size}: must be a power of two from {MIN_BLOCK_SIZE} to \
         {MAX_BLOCK_SIZE}"
    ))
}
