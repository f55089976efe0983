//! When may a difference be claimed? Only if the rank test and the bootstrap interval agree.

use serde::Serialize;

use super::bootstrap::{Interval, difference_interval};
use super::rank::rank_test;
use super::summary::mean;

/// How often a difference may be claimed where there is none: 1 in 100, so that an A/A series of
/// twenty comparisons stays quiet at least nineteen times with a wide margin.
pub const LEVEL: f64 = 0.01;

/// What the samples carry about the second side against the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second side's values are smaller.
    Lower,
    /// The second side's values are larger.
    Higher,
    /// The samples do not carry a difference.
    NoDifference,
}

/// The second side against the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// Difference of the averages in per cent of the first; none if the first average is zero.
    pub difference_percent: Option<f64>,
    /// Where that difference lies with a probability of 1 - [`LEVEL`].
    pub interval_percent: Option<Interval>,
    /// Chance of ranks this uneven without a difference (Mann and Whitney, two-sided).
    pub p_value: f64,
    /// What may be claimed.
    pub verdict: Verdict,
}

/// Compares samples of the same kind and unit.
pub fn compare(first: &[f64], second: &[f64]) -> Comparison {
    let difference = (!first.is_empty() && !second.is_empty())
        .then(|| (mean(second) / mean(first) - 1.0) * 100.0)
        .filter(|difference| difference.is_finite());
    let interval = difference_interval(first, second, LEVEL);
    let p_value = rank_test(first, second);
    Comparison {
        difference_percent: difference,
        interval_percent: interval,
        p_value,
        verdict: verdict(first, second, interval, p_value),
    }
}

/// Where no percentage exists (the first side is all zeros), the ranks alone decide.
fn verdict(first: &[f64], second: &[f64], interval: Option<Interval>, p_value: f64) -> Verdict {
    if p_value >= LEVEL || interval.is_some_and(|interval| interval.holds_zero()) {
        return Verdict::NoDifference;
    }
    match mean(second).total_cmp(&mean(first)) {
        std::cmp::Ordering::Less => Verdict::Lower,
        std::cmp::Ordering::Equal => Verdict::NoDifference,
        std::cmp::Ordering::Greater => Verdict::Higher,
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    /// Long-tailed, as latencies are.
    fn exponential(random: &mut Random, average: f64, count: usize) -> Vec<f64> {
        (0..count)
            .map(|_| -average * (1.0 - random.unit()).ln())
            .collect()
    }

    #[test]
    fn an_a_a_series_is_quiet_at_least_nineteen_times_of_twenty() {
        let mut random = Random::new(20);
        let claims = (0..20)
            .filter(|_| {
                let (first, second) = (
                    exponential(&mut random, 10.2, 50),
                    exponential(&mut random, 10.2, 50),
                );
                compare(&first, &second).verdict != Verdict::NoDifference
            })
            .count();
        assert!(claims <= 1, "{claims} of 20");
    }

    #[test]
    fn over_many_a_a_runs_the_claims_stay_near_the_stated_level() {
        let mut random = Random::new(4);
        let claims = (0..300)
            .filter(|_| {
                let (first, second) = (
                    exponential(&mut random, 1.0, 20),
                    exponential(&mut random, 1.0, 20),
                );
                compare(&first, &second).verdict != Verdict::NoDifference
            })
            .count();
        assert!(claims <= 9, "{claims} of 300");
    }

    #[test]
    fn a_fifth_of_the_latency_is_claimed_in_the_right_direction() {
        let mut random = Random::new(5);
        let (slow, fast) = (
            exponential(&mut random, 10.0, 50),
            exponential(&mut random, 2.0, 50),
        );
        assert_eq!(compare(&slow, &fast).verdict, Verdict::Lower);
        assert_eq!(compare(&fast, &slow).verdict, Verdict::Higher);
        assert!(compare(&slow, &fast).difference_percent.unwrap() < -70.0);
    }

    #[test]
    fn three_samples_a_side_never_carry_a_claim() {
        assert_eq!(
            compare(&[100.0, 101.0, 102.0], &[1.0, 2.0, 3.0]).verdict,
            Verdict::NoDifference
        );
    }

    #[test]
    fn one_wild_sample_is_no_difference() {
        let calm = [5.0, 5.1, 5.2, 4.9, 5.0, 5.3, 4.8, 5.1, 5.0, 4.9];
        let mut wild = calm;
        wild[3] = 90.0;
        assert_eq!(compare(&calm, &wild).verdict, Verdict::NoDifference);
    }

    #[test]
    fn a_first_side_of_zeros_gives_no_percentage_but_a_direction() {
        let comparison = compare(&[0.0; 10], &[5.0; 10]);
        assert_eq!(
            (comparison.difference_percent, comparison.verdict),
            (None, Verdict::Higher)
        );
        assert_eq!(
            compare(&[0.0; 10], &[0.0; 10]).verdict,
            Verdict::NoDifference
        );
        assert_eq!(compare(&[], &[]).verdict, Verdict::NoDifference);
    }
}
