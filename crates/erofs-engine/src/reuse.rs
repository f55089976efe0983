//! Measures whether bytes decoded beyond a read are requested later.
//!
//! Every pcluster that was read in part is tracked for a while, by its cached bytes or by its key
//! alone. A second request counts as a success, eviction without one as a failure. Streams and
//! programs that read around one place have nearly only successes. Random reads of a large file
//! have nearly none, and then neither decoding to the end nor caching pays.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// A probability in parts of [`Reuse::ONE`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reuse(u32);

impl Reuse {
    const ONE: u32 = 1 << 12;
    /// Approximate number of outcomes in the average.
    const MEMORY: u32 = 16;

    /// Adds one outcome.
    pub(crate) fn record(&mut self, asked_again: bool) {
        let target = if asked_again { Self::ONE } else { 0 };
        self.0 = (self.0 * (Self::MEMORY - 1) + target) / Self::MEMORY;
    }

    /// Whether to decode a pcluster to its end when `needed` of `whole` units of work would do.
    /// Stopping costs all of the work again, with the probability of reuse; going on costs the rest
    /// of it now.
    pub(crate) fn pays_whole(self, needed: u64, whole: u64) -> bool {
        let rest = whole.saturating_sub(needed);
        u128::from(rest) * u128::from(Self::ONE) < u128::from(whole) * u128::from(self.0)
    }

    /// Whether caching the bytes pays: they evict others, and their memory is cold.
    pub(crate) fn pays_caching(self) -> bool {
        self.0 >= Self::ONE / 8
    }
}

impl Default for Reuse {
    /// Without samples, a read in the first quarter of a pcluster stops there; every other one
    /// decodes to the end, and is cached.
    fn default() -> Self {
        Self(Self::ONE / 4 * 3)
    }
}

/// The same for threads that record at the same time; one of two outcomes may be lost then.
#[derive(Debug)]
pub(crate) struct SharedReuse(AtomicU32);

impl SharedReuse {
    pub(crate) fn record(&self, asked_again: bool) {
        let mut reuse = self.now();
        reuse.record(asked_again);
        if self.0.load(Relaxed) != reuse.0 {
            self.0.store(reuse.0, Relaxed);
        }
    }

    /// What is known so far.
    pub(crate) fn now(&self) -> Reuse {
        Reuse(self.0.load(Relaxed))
    }
}

impl Default for SharedReuse {
    fn default() -> Self {
        Self(AtomicU32::new(Reuse::default().0))
    }
}

#[cfg(test)]
mod tests {
    use super::Reuse;

    fn after(outcomes: usize, asked_again: bool) -> Reuse {
        let mut reuse = Reuse::default();
        (0..outcomes).for_each(|_| reuse.record(asked_again));
        reuse
    }

    #[test]
    fn at_first_only_reads_in_the_first_quarter_stop_early() {
        let reuse = Reuse::default();
        assert!(!reuse.pays_whole(25, 100));
        assert!(reuse.pays_whole(26, 100));
        assert!(reuse.pays_caching());
    }

    #[test]
    fn random_reads_decode_what_they_need_and_keep_nothing() {
        let reuse = after(100, false);
        assert!(!reuse.pays_whole(99, 100));
        assert!(!reuse.pays_caching());
    }

    #[test]
    fn streams_decode_to_the_end() {
        assert!(after(100, true).pays_whole(1, 100));
    }

    #[test]
    fn a_few_successes_bring_the_trust_back() {
        let mut reuse = after(1000, false);
        (0..8).for_each(|_| reuse.record(true));
        assert!(reuse.pays_caching());
        assert!(reuse.pays_whole(65, 100));
    }
}
