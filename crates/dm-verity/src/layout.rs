//! The positions of a tree's levels on the hash device.

use crate::error::{Error, Result};
use crate::hash::HashType;
use crate::parameters::Parameters;

/// The levels of a tree. The root comes first on the device, level 0 (the hashes of data blocks)
/// last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The levels in ascending order, from level 0; empty if there is only one data block.
    pub(crate) levels: Vec<Level>,
    /// log2 of the number of digests in a hash block.
    bits: u32,
    /// Bytes from one digest of a hash block to the next.
    pub(crate) stride: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// Offset of the level on the hash device, in bytes.
    pub(crate) start: u64,
    /// Number of hash blocks.
    pub(crate) blocks: u64,
}

impl Layout {
    /// # Errors
    /// The tree would end beyond 2^64 bytes.
    pub(crate) fn new(parameters: &Parameters) -> Result<Self> {
        let block_size = u64::from(parameters.hash_block_size);
        let digest_size = parameters.algorithm.digest_size();
        let bits = (parameters.hash_block_size / digest_size as u32).ilog2();
        let stride = match parameters.hash_type {
            HashType::ChromeOs => digest_size,
            HashType::Normal => parameters.hash_block_size as usize >> bits,
        };
        let mut counts = Vec::new();
        let mut below = parameters.data_blocks;
        while below > 1 {
            below = below.div_ceil(1 << bits);
            counts.push(below);
        }
        let mut start = parameters.tree_start;
        let mut levels = Vec::with_capacity(counts.len());
        for blocks in counts.into_iter().rev() {
            levels.push(Level { start, blocks });
            let size = blocks.checked_mul(block_size);
            let Some(end) = size.and_then(|size| start.checked_add(size)) else {
                let blocks = parameters.data_blocks;
                return Error::format(format!(
                    "a hash tree over {blocks} data blocks would be too large"
                ));
            };
            start = end;
        }
        levels.reverse();
        Ok(Self {
            levels,
            bits,
            stride,
        })
    }

    /// Offset of the first byte after the tree.
    pub(crate) fn end(&self, parameters: &Parameters) -> u64 {
        self.levels.first().map_or(parameters.tree_start, |leaf| {
            leaf.start + leaf.blocks * u64::from(parameters.hash_block_size)
        })
    }

    /// Returns the number of the hash block that holds the digest of block `below`, and the
    /// position of the digest in it.
    pub(crate) fn parent(&self, below: u64) -> (u64, usize) {
        (
            below >> self.bits,
            (below & ((1 << self.bits) - 1)) as usize,
        )
    }

    /// Digests in a hash block.
    pub(crate) fn per_block(&self) -> usize {
        1 << self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HashAlgorithm;

    fn layout(blocks: u64, algorithm: HashAlgorithm) -> Layout {
        let parameters = Parameters::new(algorithm, 4096, 4096, blocks, Vec::new(), 4096).unwrap();
        Layout::new(&parameters).unwrap()
    }

    #[test]
    fn the_root_comes_first_and_the_leaves_last() {
        let tree = layout(128 * 128 + 1, HashAlgorithm::Sha256);
        let at = |block: u64, blocks| Level {
            start: block * 4096,
            blocks,
        };
        assert_eq!(tree.levels, [at(4, 129), at(2, 2), at(1, 1)]);
        assert_eq!(tree.parent(129), (1, 1));
    }

    #[test]
    fn a_single_block_needs_no_tree() {
        assert!(layout(1, HashAlgorithm::Sha512).levels.is_empty());
        assert_eq!(layout(2, HashAlgorithm::Sha512).levels.len(), 1);
    }

    #[test]
    fn digests_of_odd_sizes_are_padded_to_a_power_of_two_in_type_1_only() {
        let tree = layout(2, HashAlgorithm::Sha384);
        assert_eq!((tree.stride, tree.per_block()), (64, 64));
        let parameters = Parameters::new(HashAlgorithm::Sha384, 4096, 4096, 2, Vec::new(), 0);
        let packed = parameters.unwrap().with_hash_type(HashType::ChromeOs);
        assert_eq!(Layout::new(&packed).unwrap().stride, 48);
    }

    #[test]
    fn a_tree_beyond_all_devices_is_refused() {
        let parameters = Parameters::new(
            HashAlgorithm::Sha512,
            512,
            512 * 1024,
            (1 << 54) - 1,
            Vec::new(),
            u64::MAX - 512 * 1024 + 1,
        );
        assert!(Layout::new(&parameters.unwrap()).is_err());
    }
}
