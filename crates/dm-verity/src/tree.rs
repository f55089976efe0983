//! A hash tree, and the check of data blocks against it.

use std::ops::Range;

use crate::cache::{HashBlock, HashBlockCache};
use crate::error::{Error, Mismatch, Result};
use crate::hash::BlockHasher;
use crate::hash_device::HashDevice;
use crate::layout::Layout;
use crate::parameters::Parameters;
use crate::root_hash::RootHash;

/// An opened hash tree. Hash blocks are read when they are first needed and verified up to the root
/// hash. All blocks above level 0 are kept, plus up to 2 MiB of level 0.
#[derive(Debug)]
pub struct Tree {
    parameters: Parameters,
    layout: Layout,
    hasher: BlockHasher,
    root: Vec<u8>,
    cache: HashBlockCache,
}

impl Tree {
    /// Opens the tree at [`Parameters`] on `hash_device`, and verifies the path from the root to
    /// the digest of the last data block. A wrong root hash, salt, algorithm, block size or number
    /// of blocks is therefore found here rather than in a later read.
    ///
    /// # Errors
    /// The tree does not fit on `hash_device`, cannot be read, or does not match the root hash.
    pub fn open(
        parameters: Parameters,
        root: &RootHash,
        hash_device: &dyn HashDevice,
    ) -> Result<Self> {
        let digest_size = parameters.algorithm.digest_size();
        if root.as_bytes().len() != digest_size {
            let bytes = match root.as_bytes().len() {
                1 => "1 byte".to_owned(),
                bytes => format!("{bytes} bytes"),
            };
            return Err(Error::RootHash(format!(
                "{bytes}, but the digests of this tree have {digest_size}"
            )));
        }
        let layout = Layout::new(&parameters)?;
        if layout.end(&parameters) > hash_device.size() {
            return Error::format(format!(
                "the hash tree of {} data blocks ends at byte {}, but the hash device ends at \
                 byte {}",
                parameters.data_blocks,
                layout.end(&parameters),
                hash_device.size()
            ));
        }
        let leaves = layout.levels.first().map_or(0, |level| level.blocks);
        let tree = Self {
            hasher: BlockHasher::new(parameters.algorithm, parameters.hash_type, &parameters.salt),
            root: root.as_bytes().to_vec(),
            cache: HashBlockCache::new(parameters.hash_block_size, leaves),
            layout,
            parameters,
        };
        tree.check_end(hash_device)?;
        Ok(tree)
    }

    /// The parameters of the tree.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The positions of the hash blocks that verify these data bytes, from the leaves to the root.
    pub fn hashes(&self, data: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let size = u64::from(self.parameters.data_block_size);
        let end = data.end.div_ceil(size).min(self.parameters.data_blocks);
        let last = end.saturating_sub(1);
        let mut blocks = (data.start / size).min(last)..=last;
        self.layout.levels.iter().map(move |level| {
            let parent = |block: &u64| self.layout.parent(*block).0;
            blocks = parent(blocks.start())..=parent(blocks.end());
            let at = |block: u64| level.start + block * u64::from(self.parameters.hash_block_size);
            at(*blocks.start())..at(blocks.end() + 1)
        })
    }

    /// Checks whole data blocks: `data` was read from the data device, starting at block `first`.
    /// Hash blocks that are not cached are read from `hash_device`.
    ///
    /// # Errors
    /// A data block or a hash block above it does not match, or a hash block cannot be read. The
    /// error names the first such block.
    ///
    /// # Panics
    /// If `data` is not a multiple of the data block size.
    pub fn verify(&self, hash_device: &dyn HashDevice, data: &[u8], first: u64) -> Result<()> {
        let size = self.parameters.data_block_size as usize;
        assert!(data.len().is_multiple_of(size), "whole blocks");
        let mut held: Option<(u64, HashBlock)> = None;
        for (block, bytes) in (first..).zip(data.chunks(size)) {
            if block >= self.parameters.data_blocks {
                return Err(self.mismatch(block).into());
            }
            if self.layout.levels.is_empty() {
                self.check(bytes, &self.root, Mismatch::Root)?;
                continue;
            }
            let (parent, index) = self.layout.parent(block);
            let leaf = match held.take() {
                Some((number, leaf)) if number == parent => leaf,
                _ => self.hash_block(hash_device, 0, parent)?,
            };
            self.check(bytes, self.digest(&leaf, index), self.mismatch(block))?;
            held = Some((parent, leaf));
        }
        Ok(())
    }

    /// Returns a hash block, which is read and verified unless it is cached.
    fn hash_block(&self, from: &dyn HashDevice, level: usize, block: u64) -> Result<HashBlock> {
        if let Some(bytes) = self.cache.get(level, block) {
            return Ok(bytes);
        }
        let size = self.parameters.hash_block_size;
        let offset = self.layout.levels[level].start + block * u64::from(size);
        let mut bytes = vec![0; size as usize];
        from.read_exact_at(&mut bytes, offset)
            .map_err(|source| Error::Read { offset, source })?;
        if level + 1 == self.layout.levels.len() {
            self.check(&bytes, &self.root, Mismatch::Root)?;
        } else {
            let (parent, index) = self.layout.parent(block);
            // The recursion is at most 64 levels deep, like the tree.
            let above = self.hash_block(from, level + 1, parent)?;
            let mismatch = Mismatch::Hash {
                level,
                block,
                offset,
            };
            self.check(&bytes, self.digest(&above, index), mismatch)?;
        }
        let bytes: HashBlock = bytes.into();
        self.cache.put(level, block, bytes.clone());
        Ok(bytes)
    }

    /// Checks that each level has a digest for the last block below it, and zeros in place of a
    /// next digest, since veritysetup fills the rest of a hash block with zeros.
    fn check_end(&self, hash_device: &dyn HashDevice) -> Result<()> {
        let mut last = self.parameters.data_blocks - 1;
        let wrong = Mismatch::Length { last };
        for level in 0..self.layout.levels.len() {
            let (block, index) = self.layout.parent(last);
            let bytes = self.hash_block(hash_device, level, block)?;
            let is_empty = |index| self.digest(&bytes, index).iter().all(|byte| *byte == 0);
            let next = index + 1;
            if is_empty(index) || (next < self.layout.per_block() && !is_empty(next)) {
                return Err(wrong.into());
            }
            last = block;
        }
        Ok(())
    }

    fn digest<'a>(&self, hash_block: &'a [u8], index: usize) -> &'a [u8] {
        &hash_block[index * self.layout.stride..][..self.parameters.algorithm.digest_size()]
    }

    fn check(&self, block: &[u8], digest: &[u8], otherwise: Mismatch) -> Result<()> {
        match self.hasher.matches(block, digest) {
            true => Ok(()),
            false => Err(otherwise.into()),
        }
    }

    fn mismatch(&self, block: u64) -> Mismatch {
        Mismatch::Data {
            block,
            offset: block.saturating_mul(self.parameters.data_block_size.into()),
        }
    }
}
