//! The figures of the patch's table, and percentiles.

use serde::Serialize;

/// One row of figures over samples of one kind, in the samples' own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// How many samples these figures stand on.
    pub samples: usize,
    /// Arithmetic mean.
    pub average: f64,
    /// Half of the samples are below.
    pub median: f64,
    /// Smallest sample.
    pub minimum: f64,
    /// Largest sample.
    pub maximum: f64,
    /// Standard deviation of the sample (n - 1); 0 for one sample.
    pub stddev: f64,
    /// Nine of ten samples are below.
    pub p90: f64,
    /// 99 of 100 samples are below.
    pub p99: f64,
}

impl Summary {
    /// None when there is no sample.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let sorted = sorted(values);
        let (&minimum, &maximum) = (sorted.first()?, sorted.last()?);
        let average = mean(&sorted);
        Some(Summary {
            samples: sorted.len(),
            average,
            median: median_of_sorted(&sorted),
            minimum,
            maximum,
            stddev: deviation(&sorted, average),
            p90: percentile_of_sorted(&sorted, 90.0),
            p99: percentile_of_sorted(&sorted, 99.0),
        })
    }
}

/// The smallest sample that at least `percent` of all samples do not exceed: nearest rank, as sched-trace
/// computes percentiles of waits. None when there is no sample.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let sorted = sorted(values);
    (!sorted.is_empty()).then(|| percentile_of_sorted(&sorted, percent))
}

fn percentile_of_sorted(sorted: &[f64], percent: f64) -> f64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// The middle sample, or the mean of the two in the middle. None when there is no sample.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    (!sorted.is_empty()).then(|| median_of_sorted(&sorted))
}

pub(super) fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

pub(super) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(super) fn deviation(values: &[f64], average: f64) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|value| (value - average).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_samples_give_known_figures() {
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!(
            (summary.samples, summary.average, summary.median),
            (8, 5.0, 4.5)
        );
        assert_eq!((summary.minimum, summary.maximum), (2.0, 9.0));
        assert!((summary.stddev - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn no_sample_gives_no_figure_and_one_sample_no_deviation() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[3.0]).unwrap();
        assert_eq!(
            (one.average, one.median, one.stddev, one.p99),
            (3.0, 3.0, 0.0, 3.0)
        );
    }

    #[test]
    fn percentiles_are_nearest_rank_and_the_median_is_the_middle() {
        let values = [10.0, 20.0, 30.0, 40.0];
        assert_eq!(percentile(&values, 0.0), Some(10.0));
        assert_eq!(percentile(&values, 50.0), Some(20.0));
        assert_eq!(percentile(&values, 90.0), Some(40.0));
        assert_eq!(percentile(&values, 100.0), Some(40.0));
        assert_eq!((median(&values), median(&[])), (Some(25.0), None));
    }

    #[test]
    fn the_order_of_samples_does_not_matter() {
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]), Summary::of(&[1.0, 2.0, 3.0]));
    }
}
