//! Counts that statistics share: a counter with one writer, and the percentile of a histogram.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Adds without a locked instruction: the counter has one writer, and any reader.
pub fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// The first bucket up to which at least `part` of `whole` parts of all values are (nearest rank).
/// `None` if there is no value.
pub fn nearest_rank(counts: &[u64], part: u64, whole: u64) -> Option<usize> {
    let total: u64 = counts.iter().sum();
    let wanted = (u128::from(total) * u128::from(part)).div_ceil(u128::from(whole)) as u64;
    let mut seen = 0;
    counts.iter().position(|count| {
        seen += count;
        seen >= wanted && seen > 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_the_first_bucket_that_covers_the_part() {
        let counts = [0, 90, 0, 9, 1];
        assert_eq!(nearest_rank(&counts, 90, 100), Some(1));
        assert_eq!(nearest_rank(&counts, 901, 1000), Some(3));
        assert_eq!(nearest_rank(&counts, 100, 100), Some(4));
        assert_eq!(nearest_rank(&counts, 0, 100), Some(1));
        assert_eq!(nearest_rank(&[0, 0], 50, 100), None);
    }

    #[test]
    fn additions_add_up() {
        let counter = AtomicU64::new(1);
        add(&counter, 2);
        assert_eq!(counter.load(Relaxed), 3);
    }
}
