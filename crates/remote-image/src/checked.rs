//! The blocks of a store that were seen to match their checksums.
//!
//! Other programs may change the cache's files while they are being read, so an observation holds
//! only while the file's change time stays the same.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks per word. The lower half of a word has a bit for each block; the upper half says after
/// which change of the file these blocks were seen to match.
const BLOCKS: u64 = 32;

/// Number of words that are allocated together when one of their blocks is first read. They are not
/// allocated earlier, because the server chooses the number of blocks, and the whole set may be
/// large.
const WORDS: u64 = 512;

/// The set of checked blocks, which needs no lock.
#[derive(Debug)]
pub(crate) struct Checked(Vec<OnceLock<Box<[AtomicU64]>>>);

impl Checked {
    /// Creates the set, with none of the `blocks` blocks checked.
    pub(crate) fn new(blocks: u64) -> Checked {
        let parts = 0..blocks.div_ceil(BLOCKS * WORDS);
        Checked(parts.map(|_| OnceLock::new()).collect())
    }

    /// Whether a block was seen to match after the file's last change, which `changed` identifies.
    pub(crate) fn is(&self, block: u64, changed: u32) -> bool {
        let word = self.word(block).load(Ordering::Relaxed);
        word >> BLOCKS == u64::from(changed) && word & bit(block) != 0
    }

    /// Records that a block that was read after this change of the file matches.
    pub(crate) fn set(&self, block: u64, changed: u32) {
        let since = u64::from(changed) << BLOCKS;
        let with = |word| match word >> BLOCKS == u64::from(changed) {
            true => Some(word | bit(block)),
            false => Some(since | bit(block)),
        };
        let order = Ordering::Relaxed;
        let _ = self.word(block).fetch_update(order, order, with);
    }

    /// The number of blocks that were seen to match.
    pub(crate) fn count(&self) -> u64 {
        let words = self.0.iter().filter_map(OnceLock::get).flatten();
        let blocks = words.map(|word| (word.load(Ordering::Relaxed) as u32).count_ones());
        blocks.map(u64::from).sum()
    }

    pub(crate) fn forget(&self, block: u64) {
        self.word(block).fetch_and(!bit(block), Ordering::Relaxed);
    }

    fn word(&self, block: u64) -> &AtomicU64 {
        let (part, word) = (block / BLOCKS / WORDS, block / BLOCKS % WORDS);
        let new = || (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        &self.0[part as usize].get_or_init(new)[word as usize]
    }
}

fn bit(block: u64) -> u64 {
    1 << (block % BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_holds_until_the_file_changes() {
        let checked = Checked::new(1 << 30);
        checked.set(31, 7);
        checked.set(30, 7);
        assert!(checked.is(31, 7) && checked.is(30, 7) && !checked.is(39, 7));
        assert!(!checked.is(31, 8));
        checked.set(31, 8);
        assert!(checked.is(31, 8) && !checked.is(30, 8));
        checked.set((1 << 30) - 1, 9);
        assert!(checked.is((1 << 30) - 1, 9) && !checked.is((1 << 30) - 2, 9));
        checked.forget(31);
        assert!(!checked.is(31, 8));
    }
}
