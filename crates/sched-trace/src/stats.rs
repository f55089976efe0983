//! Statistics of waits. Nothing is thrown away and nothing is smoothed.

use serde::Serialize;

/// Figures of a set of waits, in microseconds. All are 0 where there is no wait.
///
/// Percentiles are nearest-rank: the smallest wait that at least that share of all waits does not
/// exceed. The median is the mean of the two middle waits where their number is even.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub total_us: f64,
    /// Their mean.
    pub average_us: f64,
    /// The middle one.
    pub median_us: f64,
    /// The shortest.
    pub minimum_us: f64,
    /// The longest.
    pub maximum_us: f64,
    /// Standard deviation of a sample (n - 1); 0 for fewer than two.
    pub stddev_us: f64,
    /// 90 of 100 waits are not longer.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p999_us: f64,
}

impl Summary {
    /// Summary of waits in nanoseconds, in any order. Sorts them.
    pub fn of(waits_ns: &mut [u64]) -> Self {
        waits_ns.sort_unstable();
        let (Some(&shortest), Some(&longest)) = (waits_ns.first(), waits_ns.last()) else {
            return Self::default();
        };
        let total: u128 = waits_ns.iter().map(|&ns| u128::from(ns)).sum();
        let average = total as f64 / waits_ns.len() as f64;
        Self {
            count: waits_ns.len() as u64,
            total_us: total as f64 / 1e3,
            average_us: average / 1e3,
            median_us: median(waits_ns) / 1e3,
            minimum_us: us(shortest),
            maximum_us: us(longest),
            stddev_us: deviation(waits_ns, average) / 1e3,
            p90_us: us(percentile(waits_ns, 900)),
            p99_us: us(percentile(waits_ns, 990)),
            p999_us: us(percentile(waits_ns, 999)),
        }
    }
}

/// Nanoseconds as microseconds.
pub fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The middle of sorted values.
fn median(sorted: &[u64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle] as f64
    } else {
        (sorted[middle - 1] as f64 + sorted[middle] as f64) / 2.0
    }
}

/// Nearest rank of `per_mille` in sorted, non-empty values.
pub fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille)
        .div_ceil(1000)
        .clamp(1, sorted.len());
    sorted[rank - 1]
}

/// Sample standard deviation around a known mean.
fn deviation(values: &[u64], mean: f64) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|&v| (v as f64 - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Waits counted by length, in powers of two: bucket `i` holds waits of `[2^i, 2^(i+1))` ns, and
/// bucket 0 those of 0 as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// 64 counters.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// Counts waits in nanoseconds.
    pub fn of(waits_ns: impl IntoIterator<Item = u64>) -> Self {
        let mut buckets = vec![0; 64];
        for ns in waits_ns {
            buckets[ns.max(1).ilog2() as usize] += 1;
        }
        Self { buckets }
    }

    /// The waits of both.
    pub fn with(&self, other: &Histogram) -> Histogram {
        let both = self.buckets.iter().zip(&other.buckets);
        let buckets = both.map(|(one, another)| one + another).collect();
        Histogram { buckets }
    }

    /// Buckets from the first to the last that is not empty: lower bound in ns, and count.
    pub fn occupied(&self) -> impl Iterator<Item = (u64, u64)> {
        let first = self.buckets.iter().position(|&n| n > 0).unwrap_or(0);
        let end = self
            .buckets
            .iter()
            .rposition(|&n| n > 0)
            .map_or(0, |last| last + 1);
        (first..end).map(|i| (1 << i, self.buckets[i]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_waits_give_known_figures() {
        let mut waits = [4000, 1000, 3000, 2000];
        let s = Summary::of(&mut waits);
        assert_eq!(
            (s.count, s.total_us, s.average_us, s.median_us),
            (4, 10.0, 2.5, 2.5)
        );
        assert_eq!((s.minimum_us, s.maximum_us), (1.0, 4.0));
        assert!((s.stddev_us - 1.290_994_4).abs() < 1e-6);
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let mut waits: Vec<u64> = (1..=1000).map(|n| n * 1000).collect();
        let s = Summary::of(&mut waits);
        assert_eq!((s.p90_us, s.p99_us, s.p999_us), (900.0, 990.0, 999.0));
        let s = Summary::of(&mut [7000]);
        assert_eq!(
            (s.median_us, s.p90_us, s.p999_us, s.stddev_us),
            (7.0, 7.0, 7.0, 0.0)
        );
    }

    #[test]
    fn no_wait_gives_zeros() {
        assert_eq!(Summary::of(&mut []), Summary::default());
    }

    #[test]
    fn the_histogram_doubles_from_bucket_to_bucket() {
        let histogram = Histogram::of([0, 1, 2, 3, 4, 1024]);
        let twice = histogram.with(&histogram);
        assert_eq!(twice.buckets.iter().sum::<u64>(), 12);
        let occupied: Vec<_> = histogram.occupied().filter(|&(_, n)| n > 0).collect();
        assert_eq!(occupied, [(1, 2), (2, 2), (4, 1), (1024, 1)]);
    }
}
