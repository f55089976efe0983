//! Finds bimodal samples, which occur when some launches hit a stall and others do not. An average
//! describes neither group.

use serde::{Deserialize, Serialize};

use sched_trace::stats::{deviation, mean, median_of_sorted, sorted};

/// Minimum number of samples in a group; fewer would be outliers.
const FEWEST: usize = 3;
/// Minimum distance between the groups' averages, in units of their common deviation (Ashman's D,
/// 1994). The distance is 3.5 between the halves of a uniform distribution, 2.7 between those of a
/// bell curve, and 4 for the best division of an exponential distribution.
const SEPARATION: f64 = 6.0;
/// Minimum gap between the groups, in standard deviations of the wider group.
const GAP: f64 = 2.0;

/// Two groups of samples with a clear gap between them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Modes {
    /// Number of samples in the lower group.
    pub lower: usize,
    /// Median of the lower group.
    pub lower_median: f64,
    /// Number of samples in the upper group.
    pub upper: usize,
    /// Median of the upper group.
    pub upper_median: f64,
}

/// The two groups of bimodal samples; `None` if the samples are not bimodal.
pub fn modes(values: &[f64]) -> Option<Modes> {
    let sorted = sorted(values);
    let cuts = FEWEST..=sorted.len().saturating_sub(FEWEST);
    let best = cuts
        .map(|cut| (separation(&sorted[..cut], &sorted[cut..]), cut))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    let (lower, upper) = sorted.split_at(best.1);
    (best.0 > SEPARATION && gap(lower, upper) > GAP).then(|| Modes {
        lower: lower.len(),
        lower_median: median_of_sorted(lower),
        upper: upper.len(),
        upper_median: median_of_sorted(upper),
    })
}

fn deviations(lower: &[f64], upper: &[f64]) -> (f64, f64) {
    let of = |side: &[f64]| deviation(side, mean(side));
    (of(lower), of(upper))
}

fn separation(lower: &[f64], upper: &[f64]) -> f64 {
    let (low, high) = deviations(lower, upper);
    let distance = mean(upper) - mean(lower);
    if distance <= 0.0 {
        return 0.0;
    }
    distance / ((low * low + high * high) / 2.0).sqrt()
}

fn gap(lower: &[f64], upper: &[f64]) -> f64 {
    let (low, high) = deviations(lower, upper);
    match (lower.last(), upper.first()) {
        (Some(last), Some(first)) => (first - last) / low.max(high),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn launches_that_stall_are_a_group_of_their_own() {
        let mut values: Vec<f64> = (0..15).map(|k| 50.0 + f64::from(k % 4)).collect();
        values.extend([400.0, 410.0, 395.0, 420.0, 405.0]);
        let modes = modes(&values).unwrap();
        assert_eq!((modes.lower, modes.upper), (15, 5));
        assert_eq!((modes.lower_median, modes.upper_median), (51.0, 405.0));
    }

    #[test]
    fn one_stall_is_an_outlier_and_few_or_equal_samples_have_no_groups() {
        let mut values = vec![10.0, 11.0, 9.0, 10.5, 9.5, 10.2, 9.9];
        values.push(90.0);
        assert_eq!(modes(&values), None);
        assert_eq!(modes(&[7.0; 20]), None);
        assert_eq!(modes(&[1.0, 2.0, 90.0]), None);
        assert_eq!(modes(&[]), None);
    }

    #[test]
    fn long_tails_are_not_two_groups() {
        let mut random = Rng::with_seed(3);
        let found = (0..400).filter(|_| {
            let values: Vec<f64> = (0..30).map(|_| -(1.0 - random.f64()).ln()).collect();
            modes(&values).is_some()
        });
        // The expected rate, 2 in 100, is from 4,000 draws of another generator.
        let found = found.count();
        assert!(found <= 16, "{found} of 400");
    }
}
