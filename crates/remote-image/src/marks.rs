//! The positions at which readers report their progress.
//!
//! A reader whose bytes are present requests none, so without these reports the fetcher would not
//! know that the reader continues.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::message::STREAMS;

/// The value of an empty place.
const NONE: u64 = u64::MAX;

/// Block numbers, which are updated atomically.
#[derive(Debug)]
pub(crate) struct Marks {
    blocks: [AtomicU64; STREAMS],
    next: AtomicUsize,
}

impl Default for Marks {
    fn default() -> Marks {
        Marks {
            blocks: [const { AtomicU64::new(NONE) }; STREAMS],
            next: AtomicUsize::new(0),
        }
    }
}

impl Marks {
    /// Adds a mark, replacing the oldest.
    pub(crate) fn add(&self, block: u64) {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % STREAMS;
        self.blocks[place].store(block, Ordering::Relaxed);
    }

    /// Removes and returns the mark among these blocks.
    pub(crate) fn take(&self, blocks: &Range<u64>) -> Option<u64> {
        let taken = |mark: &AtomicU64| {
            let block = mark.load(Ordering::Relaxed);
            let taken = (Ordering::Relaxed, Ordering::Relaxed);
            let is_taken = || mark.compare_exchange(block, NONE, taken.0, taken.1).is_ok();
            (blocks.contains(&block) && is_taken()).then_some(block)
        };
        self.blocks.iter().find_map(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_taken_once_and_the_oldest_is_forgotten() {
        let marks = Marks::default();
        (0..=STREAMS as u64).for_each(|number| marks.add(10 * number));
        assert_eq!(marks.take(&(0..1)), None);
        assert_eq!(marks.take(&(5..15)), Some(10));
        assert_eq!(marks.take(&(5..15)), None);
        assert_eq!(marks.take(&(160..161)), Some(160));
    }
}
