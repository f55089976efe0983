//! Summary statistics, and the definition of percentiles that the whole workspace uses.

use serde::{Deserialize, Serialize};

/// Figures of a set of samples, in the unit of the samples. All are 0 if there is no sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of samples.
    #[serde(rename = "samples")]
    pub count: usize,
    /// Sum of the samples.
    pub total: f64,
    /// Arithmetic mean.
    pub average: f64,
    /// The middle sample, or the mean of the two in the middle.
    pub median: f64,
    /// Smallest sample.
    pub minimum: f64,
    /// Largest sample.
    pub maximum: f64,
    /// Sample standard deviation (n - 1); 0 for fewer than two samples.
    pub stddev: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
}

impl Summary {
    /// Summarizes samples in any order. `None` if there is no sample.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples);
        let (&minimum, &maximum) = (sorted.first()?, sorted.last()?);
        let total: f64 = sorted.iter().sum();
        let average = total / sorted.len() as f64;
        Some(Self {
            count: sorted.len(),
            total,
            average,
            median: median_of_sorted(&sorted),
            minimum,
            maximum,
            stddev: deviation(&sorted, average),
            p90: percentile_of_sorted(&sorted, 90.0),
            p99: percentile_of_sorted(&sorted, 99.0),
            p999: percentile_of_sorted(&sorted, 99.9),
        })
    }

    /// Summarizes durations in nanoseconds; the figures are in microseconds.
    pub fn of_ns(samples: &[u64]) -> Self {
        let samples: Vec<f64> = samples.iter().map(|&ns| us(ns)).collect();
        Self::of(&samples).unwrap_or_default()
    }
}

/// Converts nanoseconds, or a sum of them, to microseconds.
pub fn us(ns: impl Into<u128>) -> f64 {
    ns.into() as f64 / 1e3
}

/// The smallest sample that at least `percent` of the samples do not exceed (nearest rank). `None`
/// if there is no sample.
pub fn percentile(samples: &[f64], percent: f64) -> Option<f64> {
    let sorted = sorted(samples);
    (!sorted.is_empty()).then(|| percentile_of_sorted(&sorted, percent))
}

fn percentile_of_sorted(sorted: &[f64], percent: f64) -> f64 {
    // 99.9 per cent of 1000 samples are exactly 999, without the rounding error of 99.9.
    let rank = (sorted.len() as f64 * percent / 100.0 - 1e-9).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The middle sample, or the mean of the two in the middle. `None` if there is no sample.
pub fn median(samples: &[f64]) -> Option<f64> {
    let sorted = sorted(samples);
    (!sorted.is_empty()).then(|| median_of_sorted(&sorted))
}

/// The median of sorted, non-empty samples.
pub fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Returns a sorted copy of the samples.
pub fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// Arithmetic mean; NaN if there is no sample.
pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// Sample standard deviation (n - 1) around a known mean; 0 for fewer than two samples.
pub fn deviation(samples: &[f64], mean: f64) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    (squares / (samples.len() - 1) as f64).sqrt()
}

/// Durations counted in power-of-two buckets: bucket `i` holds `[2^i, 2^(i+1))` ns; bucket 0 also
/// holds 0. For drawing only: percentiles are computed from the samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// 64 counters.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// Counts durations in nanoseconds.
    pub fn of(samples_ns: impl IntoIterator<Item = u64>) -> Self {
        let mut buckets = vec![0; 64];
        for ns in samples_ns {
            buckets[ns.max(1).ilog2() as usize] += 1;
        }
        Self { buckets }
    }

    /// The sum of two histograms.
    pub fn with(&self, other: &Histogram) -> Histogram {
        let both = self.buckets.iter().zip(&other.buckets);
        let buckets = both.map(|(one, another)| one + another).collect();
        Histogram { buckets }
    }

    /// The buckets that hold a sample: lower bound in ns, and count.
    pub fn occupied(&self) -> impl Iterator<Item = (u64, u64)> {
        let occupied = self.buckets.iter().enumerate().filter(|(_, n)| **n > 0);
        occupied.map(|(bucket, &count)| (1 << bucket, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_known_samples() {
        let summary = Summary::of(&[9.0, 4.0, 2.0, 4.0, 5.0, 4.0, 5.0, 7.0]).unwrap();
        assert_eq!(
            (summary.count, summary.total, summary.average),
            (8, 40.0, 5.0)
        );
        assert_eq!(
            (summary.minimum, summary.median, summary.maximum),
            (2.0, 4.5, 9.0)
        );
        assert!((summary.stddev - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        let one = Summary::of(&[3.0]).unwrap();
        assert_eq!(
            (one.average, one.median, one.p999, one.stddev),
            (3.0, 3.0, 3.0, 0.0)
        );
        assert_eq!(Summary::of(&[]), None);
        let in_us = Summary::of_ns(&[4000, 1000, 3000, 2000]);
        assert_eq!(
            (in_us.total, in_us.minimum, in_us.maximum),
            (10.0, 1.0, 4.0)
        );
        assert_eq!(Summary::of_ns(&[]), Summary::default());
    }

    #[test]
    fn percentiles_are_nearest_rank_and_the_median_is_the_middle() {
        let samples = [10.0, 20.0, 30.0, 40.0];
        let percentiles = [0.0, 50.0, 90.0].map(|percent| percentile(&samples, percent));
        assert_eq!(percentiles, [Some(10.0), Some(20.0), Some(40.0)]);
        assert_eq!(median(&samples), Some(25.0));
        let many: Vec<f64> = (1..=1000).map(f64::from).collect();
        let summary = Summary::of(&many).unwrap();
        assert_eq!(
            (summary.p90, summary.p99, summary.p999),
            (900.0, 990.0, 999.0)
        );
    }

    #[test]
    fn histogram_buckets_double() {
        let histogram = Histogram::of([0, 1, 2, 3, 4, 1024]);
        let twice = histogram.with(&histogram);
        assert_eq!(twice.buckets.iter().sum::<u64>(), 12);
        let occupied: Vec<_> = histogram.occupied().collect();
        assert_eq!(occupied, [(1, 2), (2, 2), (4, 1), (1024, 1)]);
    }
}
