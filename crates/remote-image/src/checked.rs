//! Which blocks of a store were seen to fit their checksums.
//!
//! Other programs may change the files of the cache under their readers. So what was seen
//! holds for as long as the file's time of change stays the same.

use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks of a word: its lower half. The upper half is when the file was changed before.
const BLOCKS: u64 = 32;

/// Lock-free.
#[derive(Debug)]
pub(crate) struct Checked(Vec<AtomicU64>);

impl Checked {
    /// None of so many blocks.
    pub(crate) fn new(blocks: u64) -> Checked {
        let words = 0..blocks.div_ceil(BLOCKS);
        Checked(words.map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether a block was seen to fit after this last change of the file.
    pub(crate) fn is(&self, block: u64, changed: u32) -> bool {
        let word = self.word(block).load(Ordering::Relaxed);
        word >> BLOCKS == u64::from(changed) && word & bit(block) != 0
    }

    /// A block was read after this change of the file, and fits.
    pub(crate) fn set(&self, block: u64, changed: u32) {
        let since = u64::from(changed) << BLOCKS;
        let with = |word| match word >> BLOCKS == u64::from(changed) {
            true => Some(word | bit(block)),
            false => Some(since | bit(block)),
        };
        let order = Ordering::Relaxed;
        let _ = self.word(block).fetch_update(order, order, with);
    }

    pub(crate) fn forget(&self, block: u64) {
        self.word(block).fetch_and(!bit(block), Ordering::Relaxed);
    }

    fn word(&self, block: u64) -> &AtomicU64 {
        &self.0[(block / BLOCKS) as usize]
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
        let checked = Checked::new(40);
        checked.set(31, 7);
        checked.set(30, 7);
        assert!(checked.is(31, 7) && checked.is(30, 7) && !checked.is(39, 7));
        assert!(!checked.is(31, 8));
        checked.set(31, 8);
        assert!(checked.is(31, 8) && !checked.is(30, 8));
        checked.forget(31);
        assert!(!checked.is(31, 8));
    }
}
