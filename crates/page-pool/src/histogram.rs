//! A histogram of page counts: one exact bucket per number up to a limit.
//!
//! The buckets are exact, unlike those of the histograms of times, because the question is whether
//! 64 pages suffice.

/// Counts above this limit share the last bucket. The limit, 4 MiB in use, is far above the 64
/// pages in question.
const LIMIT: usize = 1024;

/// Exact up to [`LIMIT`] pages. Guarded by the pool's lock.
#[derive(Debug)]
pub(crate) struct PageHistogram {
    counts: Box<[u64]>,
    largest: usize,
}

impl PageHistogram {
    pub(crate) fn new() -> Self {
        let counts = vec![0; LIMIT + 1].into_boxed_slice();
        PageHistogram { counts, largest: 0 }
    }

    pub(crate) fn record(&mut self, pages: usize) {
        self.counts[pages.min(LIMIT)] += 1;
        self.largest = self.largest.max(pages);
    }

    /// The numbers of pages that occurred, and how often each did; the last entry counts everything
    /// above the limit.
    #[cfg(feature = "experiments")]
    pub(crate) fn counts(&self) -> Vec<(usize, u64)> {
        let counts = self.counts.iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// The smallest number of pages that `percent` per cent of the records do not exceed.
    pub(crate) fn percentile(&self, percent: u64) -> usize {
        let wanted = (self.counts.iter().sum::<u64>() * percent).div_ceil(100);
        let mut seen = 0;
        let reaches = |count: &u64| {
            seen += count;
            seen >= wanted
        };
        match self.counts.iter().position(reaches) {
            Some(LIMIT) => self.largest,
            pages => pages.unwrap_or(0),
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_of_an_empty_histogram_is_zero() {
        assert_eq!(PageHistogram::new().percentile(95), 0);
    }

    #[test]
    fn the_95th_of_one_to_hundred_is_95() {
        let mut histogram = PageHistogram::new();
        (1..=100).for_each(|pages| histogram.record(pages));
        assert_eq!(histogram.percentile(95), 95);
        assert_eq!(histogram.percentile(100), 100);
        assert_eq!(histogram.percentile(50), 50);
    }

    #[test]
    fn beyond_the_limit_the_percentile_is_the_maximum() {
        let mut histogram = PageHistogram::new();
        histogram.record(LIMIT + 1);
        histogram.record(5 * LIMIT);
        assert_eq!(histogram.percentile(95), 5 * LIMIT);
    }
}
