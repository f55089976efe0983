//! A distribution of times, recorded with three plain additions.
//!
//! This histogram is finer than the others in the workspace, because `stat` reports its
//! percentiles.

use std::sync::atomic::{AtomicU64, Ordering};

use figures::add;

use crate::Summary;

/// Each power of two is divided into 16 buckets, so a bucket spans at most 1/16 of its value.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// 2^41 ns are 36 minutes; longer times share the last bucket.
const TOP_BIT: u32 = 40;
const BUCKETS: usize = (TOP_BIT - SUB_BITS + 2) as usize * SUB;

/// All fields are atomic. Only one thread writes them, so no locked instruction is needed; any
/// thread may read them. A reader may see a value in one field but not yet in another.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BUCKETS],
    total: AtomicU64,
    max: AtomicU64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Histogram {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            total: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }

    pub(crate) fn record(&self, ns: u64) {
        add(&self.counts[bucket(ns)], 1);
        add(&self.total, ns);
        if ns > self.max.load(Ordering::Relaxed) {
            self.max.store(ns, Ordering::Relaxed);
        }
    }

    pub(crate) fn summary(&self) -> Summary {
        let counts = self.counts.each_ref().map(|n| n.load(Ordering::Relaxed));
        let count: u64 = counts.iter().sum();
        let max_ns = self.max.load(Ordering::Relaxed);
        // By nearest rank: the first bucket at which the running count reaches the rank.
        let percentile = |per_mille: u64| {
            let wanted = u128::from(count) * u128::from(per_mille);
            let mut seen = 0_u64;
            let bucket = counts.iter().position(|values| {
                seen += values;
                u128::from(seen) * 1000 >= wanted
            });
            bucket.map_or(max_ns, |bucket| upper_bound(bucket).min(max_ns))
        };
        let total_ns = self.total.load(Ordering::Relaxed);
        Summary {
            count,
            total_ns,
            average_ns: total_ns.checked_div(count).unwrap_or(0),
            max_ns,
            p50_ns: percentile(500),
            p90_ns: percentile(900),
            p99_ns: percentile(990),
            p999_ns: percentile(999),
        }
    }
}

/// Each value below 16 has its own bucket; for larger values, the highest bit and the next four
/// select the bucket.
fn bucket(ns: u64) -> usize {
    if ns < SUB as u64 {
        return ns as usize;
    }
    let top = ns.ilog2();
    if top > TOP_BIT {
        return BUCKETS - 1;
    }
    let sub = (ns >> (top - SUB_BITS)) as usize & (SUB - 1);
    (top - SUB_BITS + 1) as usize * SUB + sub
}

/// The largest value in a bucket.
fn upper_bound(bucket: usize) -> u64 {
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    if bucket < SUB {
        return bucket as u64;
    }
    let shift = (bucket / SUB - 1) as u32;
    (((SUB + bucket % SUB) as u64 + 1) << shift) - 1
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_ends_where_the_next_begins() {
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(upper_bound(index)), index);
            assert_eq!(bucket(upper_bound(index) + 1), index + 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_at_most_a_sixteenth_too_high() {
        let histogram = Histogram::new();
        (1..=10_000).for_each(|ns| histogram.record(ns));
        let summary = histogram.summary();
        for (reported, exact) in [
            (summary.p50_ns, 5_000),
            (summary.p90_ns, 9_000),
            (summary.p99_ns, 9_900),
            (summary.p999_ns, 9_990),
        ] {
            assert!(
                reported >= exact && reported <= exact + exact / 16,
                "{reported} for {exact}"
            );
        }
        assert_eq!(
            (summary.count, summary.max_ns, summary.average_ns),
            (10_000, 10_000, 5_000)
        );
    }

    #[test]
    fn an_empty_histogram_is_all_zero() {
        assert_eq!(Histogram::new().summary(), Summary::default());
    }

    #[test]
    fn beyond_half_an_hour_the_percentile_is_the_maximum() {
        let histogram = Histogram::new();
        histogram.record(u64::MAX / 2);
        assert_eq!(histogram.summary().p50_ns, u64::MAX / 2);
    }
}
