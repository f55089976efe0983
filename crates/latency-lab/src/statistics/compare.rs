//! When a difference may be claimed: only if the rank test and the interval of the averages agree,
//! in direction too.

use serde::Serialize;

use super::bootstrap::{Interval, difference_interval};
use super::rank::rank_test;
use sched_trace::stats::mean;

/// How often a claim may be made where there is no difference: 1 in 100, for all comparisons of a
/// report together.
pub const LEVEL: f64 = 0.01;

/// Verdict on the second side against the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second side's values are smaller.
    Lower,
    /// The second side's values are larger.
    Higher,
    /// Not statistically significant.
    NoDifference,
}

/// The second side against the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// Difference of the averages in per cent of the first; none if the first average is zero.
    pub difference_percent: Option<f64>,
    /// Where that difference lies with a probability of 1 - [`LEVEL`].
    pub interval_percent: Option<Interval>,
    /// The chance that a sample of the second side is lower than one of the first, ties counted
    /// half; 0.5 without a difference.
    pub chance_lower: f64,
    /// Chance of ranks this uneven without a difference (Mann and Whitney, two-sided).
    pub p_value: f64,
    /// The same after the correction for all comparisons of the report (Holm 1979).
    pub p_adjusted: f64,
    /// The number of these comparisons.
    pub comparisons: usize,
    /// What may be claimed, by `p_adjusted`.
    pub verdict: Verdict,
}

/// Compares samples of the same kind and unit, as the only comparison of its report.
pub fn compare(first: &[f64], second: &[f64]) -> Comparison {
    let difference = (!first.is_empty() && !second.is_empty())
        .then(|| (mean(second) / mean(first) - 1.0) * 100.0)
        .filter(|difference| difference.is_finite());
    let ranks = rank_test(first, second);
    let mut comparison = Comparison {
        difference_percent: difference,
        interval_percent: difference_interval(first, second, LEVEL),
        chance_lower: ranks.chance_lower,
        p_value: ranks.p_value,
        p_adjusted: ranks.p_value,
        comparisons: 1,
        verdict: Verdict::NoDifference,
    };
    comparison.judge();
    comparison
}

/// Corrects the comparisons of one report for their number (Holm 1979): the smallest of m p-values
/// is multiplied by m, the next one by m - 1, and so on. The chance of any false claim stays at
/// [`LEVEL`].
pub fn correct(mut comparisons: Vec<&mut Comparison>) {
    let count = comparisons.len();
    comparisons.sort_by(|a, b| a.p_value.total_cmp(&b.p_value));
    let mut least: f64 = 0.0;
    for (rank, comparison) in comparisons.into_iter().enumerate() {
        least = least.max(comparison.p_value * (count - rank) as f64);
        comparison.p_adjusted = least.min(1.0);
        comparison.comparisons = count;
        comparison.judge();
    }
}

impl Comparison {
    fn judge(&mut self) {
        self.verdict = match self.p_adjusted < LEVEL {
            true if self.chance_lower > 0.5 && self.average_allows(|end| end < 0.0) => {
                Verdict::Lower
            }
            true if self.chance_lower < 0.5 && self.average_allows(|end| end > 0.0) => {
                Verdict::Higher
            }
            _ => Verdict::NoDifference,
        };
    }

    /// Whether the whole interval of the averages lies on the side that the ranks say. Where no
    /// percentage exists (the first side is all zeros), the ranks alone decide.
    fn average_allows(&self, side: impl Fn(f64) -> bool) -> bool {
        match (self.difference_percent, self.interval_percent) {
            (None, _) => true,
            (Some(_), Some(interval)) => side(interval.low) && side(interval.high),
            (Some(_), None) => false,
        }
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

    /// Launch times: a floor, and a tail of about 15 % of it.
    fn launches(random: &mut Random, floor: f64, count: usize) -> Vec<f64> {
        let tail = exponential(random, floor * 0.15, count);
        tail.into_iter().map(|tail| floor + tail).collect()
    }

    #[test]
    fn ranks_and_average_that_disagree_are_no_difference() {
        // 15 launches twice as fast and 5 that stall: the ranks are lower, the average is higher.
        let steady: Vec<f64> = (0..20).map(|k| 100.0 + f64::from(k)).collect();
        let mut stalling: Vec<f64> = (0..15).map(|k| 50.0 + f64::from(k)).collect();
        stalling.extend([900.0, 950.0, 1000.0, 1050.0, 1100.0]);
        let comparison = compare(&steady, &stalling);
        assert!(comparison.difference_percent.unwrap() > 100.0);
        assert!(comparison.chance_lower > 0.7);
        assert_eq!(comparison.verdict, Verdict::NoDifference);
        let back = compare(&stalling, &steady);
        assert_eq!(back.verdict, Verdict::NoDifference);
    }

    #[test]
    fn p_values_are_corrected_for_their_number() {
        let mut family: Vec<Comparison> = [0.004, 0.0002, 0.9, 0.003]
            .into_iter()
            .map(|p_value| Comparison {
                p_value,
                chance_lower: 0.9,
                difference_percent: Some(-50.0),
                interval_percent: Some(Interval {
                    low: -60.0,
                    high: -40.0,
                }),
                ..compare(&[1.0], &[1.0])
            })
            .collect();
        correct(family.iter_mut().collect());
        let adjusted: Vec<f64> = family.iter().map(|one| one.p_adjusted).collect();
        let wanted = [0.009, 0.0008, 0.9, 0.009];
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
        assert!(adjusted.iter().zip(&wanted).all(near), "{adjusted:?}");
        assert!(family.iter().all(|one| one.comparisons == 4));
        let claims = family.iter().filter(|one| one.verdict == Verdict::Lower);
        assert_eq!(claims.count(), 3);
        family.extend([family[0]; 3]);
        correct(family.iter_mut().collect());
        assert_eq!(family[0].verdict, Verdict::NoDifference, "0.004 of seven");
    }

    #[test]
    fn an_a_a_series_of_200_comparisons_makes_no_claim() {
        let mut random = Random::new(20);
        let mut family: Vec<Comparison> = (0..200)
            .map(|number| {
                let mut side = || match number % 2 {
                    0 => exponential(&mut random, 10.2, 50),
                    _ => launches(&mut random, 300.0, 50),
                };
                let (first, second) = (side(), side());
                compare(&first, &second)
            })
            .collect();
        correct(family.iter_mut().collect());
        let claims = family
            .iter()
            .filter(|one| one.verdict != Verdict::NoDifference);
        assert_eq!(claims.count(), 0);
    }

    #[test]
    fn a_planted_difference_of_20_per_cent_is_found_in_20_of_20_among_200_comparisons() {
        let mut random = Random::new(21);
        let mut family: Vec<Comparison> = (0..200)
            .map(|number| {
                let planted = if number < 20 { 0.8 } else { 1.0 };
                let first = launches(&mut random, 300.0, 50);
                let second = launches(&mut random, 300.0 * planted, 50);
                compare(&first, &second)
            })
            .collect();
        correct(family.iter_mut().collect());
        let found = |part: &[Comparison]| {
            let claims = part.iter().filter(|one| one.verdict == Verdict::Lower);
            claims.count()
        };
        assert_eq!((found(&family[..20]), found(&family[20..])), (20, 0));
    }

    #[test]
    fn over_many_a_a_runs_the_claims_of_single_comparisons_stay_near_the_level() {
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
