//! The cache of verified hash blocks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A hash block that was verified.
pub(crate) type HashBlock = Arc<[u8]>;

/// Size of the cache for level 0, in bytes. With 4 KiB blocks and SHA-256 it covers 256 MiB of
/// data.
const LEAF_BYTES: usize = 2 << 20;

/// A cache of hash blocks. All blocks above level 0 are kept (with 4 KiB blocks and SHA-256,
/// 1/16384 of the data). A block of level 0 can be kept only in one slot, which it shares with
/// other blocks.
#[derive(Debug)]
pub(crate) struct HashBlockCache {
    upper: RwLock<HashMap<(usize, u64), HashBlock>>,
    leaves: Vec<Mutex<Option<(u64, HashBlock)>>>,
}

impl HashBlockCache {
    pub(crate) fn new(hash_block_size: u32, leaf_blocks: u64) -> Self {
        let most = (LEAF_BYTES / hash_block_size as usize).max(1) as u64;
        let slots = leaf_blocks.clamp(1, most);
        Self {
            upper: RwLock::default(),
            leaves: (0..slots).map(|_| Mutex::default()).collect(),
        }
    }

    pub(crate) fn get(&self, level: usize, block: u64) -> Option<HashBlock> {
        if level > 0 {
            let upper = self.upper.read().unwrap_or_else(PoisonError::into_inner);
            return upper.get(&(level, block)).cloned();
        }
        // For an urgent thread, verifying the block again is better than waiting for a lock holder
        // that has no CPU.
        let slot = self.slot(block).try_lock().ok()?;
        slot.as_ref()
            .filter(|(held, _)| *held == block)
            .map(|(_, bytes)| bytes.clone())
    }

    pub(crate) fn put(&self, level: usize, block: u64, bytes: HashBlock) {
        if level > 0 {
            let upper = self.upper.write();
            let mut upper = upper.unwrap_or_else(PoisonError::into_inner);
            upper.insert((level, block), bytes);
            return;
        }
        if let Ok(mut slot) = self.slot(block).try_lock() {
            *slot = Some((block, bytes));
        }
    }

    fn slot(&self, block: u64) -> &Mutex<Option<(u64, HashBlock)>> {
        &self.leaves[(block % self.leaves.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_share_their_slots_and_upper_levels_stay() {
        let cache = HashBlockCache::new(4096, u64::MAX);
        let slots = cache.leaves.len() as u64;
        assert_eq!(slots, 512);
        for block in 0..=slots {
            cache.put(0, block, vec![block as u8].into());
            cache.put(1, block, vec![block as u8].into());
        }
        assert!(cache.get(0, 0).is_none(), "its slot was taken");
        assert_eq!(cache.get(0, slots).as_deref(), Some(&[0][..]));
        assert_eq!(cache.get(0, 1).as_deref(), Some(&[1][..]));
        assert!((0..=slots).all(|block| cache.get(1, block).is_some()));
    }
}
