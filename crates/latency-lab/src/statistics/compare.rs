//! Rules for claims. A difference may be claimed only if its interval excludes zero. Equality may
//! be claimed only if the whole interval is close to zero, and averages and 90th percentiles are
//! alike. Otherwise the samples show nothing.

use serde::{Deserialize, Serialize};

use super::median;
use super::shift::{Interval, Shifts};
use super::spread::{SAME_PERCENT, Spread, percent};

/// Probability that a difference is claimed where there is none: 1 in 100 for all comparisons of a
/// report together.
pub const LEVEL: f64 = 0.01;

/// If the second side is more than this many times as large as the first, a percentage is not
/// meaningful.
const MOST_TIMES: f64 = 10.0;

/// Verdict on the second side, compared with the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second side's values are smaller.
    Lower,
    /// The second side's values are larger.
    Higher,
    /// The sides differ by less than [`SAME_PERCENT`] in shift, average and 90th percentile.
    NoDifference,
    /// The samples show neither a difference nor its absence.
    NotShown,
}

/// The second side compared with the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The shift in per cent of the first side: the median of the shifts of all pairs (Hodges and
    /// Lehmann). None if samples are zero, or if the second side is more than ten times as large as
    /// the first.
    pub difference_percent: Option<f64>,
    /// The interval that contains the shift with a probability of 1 - [`LEVEL`], for all
    /// comparisons of the report together.
    pub interval_percent: Option<Interval>,
    /// The shift in the unit of the samples, if there is no percentage.
    pub difference: Option<f64>,
    /// The interval that belongs to `difference`.
    pub interval: Option<Interval>,
    /// The second side's average relative to that of the first, in per cent; none if one is zero.
    pub average_percent: Option<f64>,
    /// The interval that contains `average_percent` with a probability of 95 %, as if it were the
    /// only comparison.
    pub average_interval_percent: Option<Interval>,
    /// The second side's 90th percentile relative to that of the first, without an interval.
    pub p90_percent: Option<f64>,
    /// The fraction of all pairs in which the second side is lower, where ties count half; 0.5 if
    /// there is no difference.
    pub chance_lower: f64,
    /// The two-sided p-value: if there is no difference, the probability that `chance_lower` is at
    /// least this far from 0.5.
    pub p_value: f64,
    /// `p_value` after the correction for all comparisons of the report (Bonferroni).
    pub p_adjusted: f64,
    /// The number of comparisons for which `p_adjusted` is corrected.
    pub comparisons: usize,
    /// The claim that the samples support.
    pub verdict: Verdict,
    #[serde(skip)]
    shifts: Shifts,
    #[serde(skip)]
    scale: Scale,
    #[serde(skip)]
    spread: Spread,
}

/// The scale of the shifts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Scale {
    /// The logarithms of the samples, so a shift is a ratio. All samples must be positive.
    Ratio,
    /// The samples themselves.
    #[default]
    Plain,
}

impl Scale {
    fn of(first: &[f64], second: &[f64]) -> Scale {
        let positive = first.iter().chain(second).all(|&value| value > 0.0);
        let near_zero = || match (median(first), median(second)) {
            (Some(first), Some(second)) => second > first * MOST_TIMES,
            _ => true,
        };
        match positive && !near_zero() {
            true => Scale::Ratio,
            false => Scale::Plain,
        }
    }

    fn value(self, sample: f64) -> f64 {
        match self {
            Scale::Ratio => sample.ln(),
            Scale::Plain => sample,
        }
    }
}

impl Interval {
    fn percent(self) -> Interval {
        Interval {
            low: percent(self.low),
            high: percent(self.high),
        }
    }
}

/// Compares the samples of two runs, as if this were the only comparison of a report.
pub fn compare(first: &[f64], second: &[f64]) -> Comparison {
    let scale = Scale::of(first, second);
    let values = |side: &[f64]| -> Vec<f64> { side.iter().map(|&v| scale.value(v)).collect() };
    let shifts = Shifts::of_sides(&values(first), &values(second));
    Comparison::new(shifts, scale, Spread::of_sides(first, second))
}

/// Compares the samples of one run, each with the round in which it was measured. Samples without a
/// partner in their round do not count.
pub fn compare_rounds(first: &[(usize, f64)], second: &[(usize, f64)]) -> Comparison {
    let partner = |(round, value): &(usize, f64)| {
        let found = first.iter().find(|(other, _)| other == round);
        found.map(|(_, other)| (*other, *value))
    };
    let pairs: Vec<(f64, f64)> = second.iter().filter_map(partner).collect();
    let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let scale = Scale::of(&first, &second);
    let values = pairs
        .iter()
        .map(|(a, b)| (scale.value(*a), scale.value(*b)));
    let shifts = Shifts::of_rounds(&values.collect::<Vec<_>>());
    Comparison::new(shifts, scale, Spread::of_rounds(&first, &second))
}

/// Pairs the samples with their rounds. If the rounds are unknown, as in reports from early
/// versions, the first sample is assigned to the first round, and so on.
pub(crate) fn in_rounds(rounds: &[usize], samples: &[f64]) -> Vec<(usize, f64)> {
    let known = rounds.len() == samples.len();
    let round = |at: usize| if known { rounds[at] } else { at };
    samples
        .iter()
        .enumerate()
        .map(|(at, &value)| (round(at), value))
        .collect()
}

/// The minimum number of rounds that a run with this many comparisons needs to support a claim.
/// With that minimum, the claim is supported only if all shifts have the same sign.
pub fn fewest_rounds(comparisons: usize) -> usize {
    let least = 2.0 * comparisons.max(1) as f64 / LEVEL;
    least.log2().ceil() as usize
}

/// The minimum number of samples per side that can support a claim if they were not measured in
/// rounds. With that minimum, the claim is supported only if all samples of one side are below all
/// samples of the other; only one of the 2n-choose-n possible orders is like that.
pub fn fewest_samples(comparisons: usize) -> usize {
    let least = 2.0 * comparisons.max(1) as f64 / LEVEL;
    let (mut samples, mut ways) = (1, 2.0);
    while ways < least {
        samples += 1;
        ways *= (4 * samples - 2) as f64 / samples as f64;
    }
    samples
}

/// A notice for a run that has too few rounds to support a claim about its engines.
pub(crate) fn too_few(
    rounds: usize,
    (sides, noun): (usize, &str),
    comparisons: usize,
) -> Option<String> {
    let fewest = fewest_rounds(comparisons);
    (comparisons > 0 && rounds < fewest).then(|| {
        let support = match rounds {
            1 => "round supports",
            _ => "rounds support",
        };
        format!("{rounds} {support} no claim about {sides} {noun}s: at least {fewest} are needed")
    })
}

/// Corrects the comparisons of one report for their number, so that the chance of any false claim
/// stays at [`LEVEL`] (Bonferroni).
pub fn correct(comparisons: Vec<&mut Comparison>) {
    let count = comparisons.len();
    for comparison in comparisons {
        comparison.judge(count);
    }
}

impl Comparison {
    fn new(shifts: Shifts, scale: Scale, spread: Spread) -> Comparison {
        let shift = shifts.median();
        let mut comparison = Comparison {
            difference_percent: shift.filter(|_| scale == Scale::Ratio).map(percent),
            interval_percent: None,
            difference: shift.filter(|_| scale == Scale::Plain),
            interval: None,
            average_percent: spread.average,
            average_interval_percent: spread.interval,
            p90_percent: spread.p90,
            chance_lower: shifts.below_zero(),
            p_value: shifts.p_value(),
            p_adjusted: 1.0,
            comparisons: 1,
            verdict: Verdict::NotShown,
            shifts,
            scale,
            spread,
        };
        comparison.judge(1);
        comparison
    }

    /// Computes the verdict of this comparison, which is one of `comparisons`.
    fn judge(&mut self, comparisons: usize) {
        self.comparisons = comparisons;
        self.p_adjusted = (self.p_value * comparisons as f64).min(1.0);
        let interval = self.shifts.interval(LEVEL / comparisons as f64);
        match self.scale {
            Scale::Plain => self.interval = interval,
            Scale::Ratio => self.interval_percent = interval.map(Interval::percent),
        }
        self.verdict = match interval {
            Some(it) if it.high < 0.0 => Verdict::Lower,
            Some(it) if it.low > 0.0 => Verdict::Higher,
            _ if self.shift_is_small() && self.spread.is_small() => Verdict::NoDifference,
            _ => Verdict::NotShown,
        };
    }

    /// Whether the interval, without the correction for the number of comparisons, contains only
    /// shifts that do not matter. A difference of [`SAME_PERCENT`] is then wrongly called no
    /// difference in 1 of 200 comparisons.
    fn shift_is_small(&self) -> bool {
        self.shifts
            .interval(LEVEL)
            .is_some_and(|it| match self.scale {
                Scale::Plain => it.low == 0.0 && it.high == 0.0,
                Scale::Ratio => {
                    let it = it.percent();
                    it.low > -SAME_PERCENT && it.high < SAME_PERCENT
                }
            })
    }

    /// Whether typical samples are the same but others are not: judged by the shift alone, the
    /// verdict would be no difference.
    pub(crate) fn hides_in_the_shift(&self) -> bool {
        self.verdict == Verdict::NotShown && self.shift_is_small()
    }

    /// Whether a difference may be claimed.
    pub fn claims(&self) -> bool {
        matches!(self.verdict, Verdict::Lower | Verdict::Higher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    /// Samples with a long tail, as latencies have.
    fn exponential(random: &mut Rng, average: f64, count: usize) -> Vec<f64> {
        (0..count)
            .map(|_| -average * (1.0 - random.f64()).ln())
            .collect()
    }

    /// Launch times: a minimum, and above it a tail of about 15 % of the minimum.
    fn launches(random: &mut Rng, floor: f64, count: usize) -> Vec<f64> {
        let tail = exponential(random, floor * 0.15, count);
        tail.into_iter().map(|tail| floor + tail).collect()
    }

    fn rounds(values: Vec<f64>) -> Vec<(usize, f64)> {
        values.into_iter().enumerate().collect()
    }

    #[test]
    fn an_a_a_series_of_300_comparisons_makes_no_claim() {
        let mut random = Rng::with_seed(20);
        let mut family: Vec<Comparison> = (0..300)
            .map(|number| {
                let mut side = || match number % 2 {
                    0 => exponential(&mut random, 10.2, 50),
                    _ => launches(&mut random, 300.0, 50),
                };
                let (first, second) = (side(), side());
                match number % 3 {
                    0 => compare(&first, &second),
                    _ => compare_rounds(&rounds(first), &rounds(second)),
                }
            })
            .collect();
        correct(family.iter_mut().collect());
        assert_eq!(family.iter().filter(|one| one.claims()).count(), 0);
    }

    #[test]
    fn planted_differences_of_20_per_cent_are_found_and_planted_equalities_called_equal() {
        let mut random = Rng::with_seed(21);
        let mut family: Vec<Comparison> = (0..200)
            .map(|number| {
                let planted = if number < 20 { 0.8 } else { 1.0 };
                let first = launches(&mut random, 300.0, 50);
                let second = launches(&mut random, 300.0 * planted, 50);
                compare_rounds(&rounds(first), &rounds(second))
            })
            .collect();
        correct(family.iter_mut().collect());
        let count =
            |part: &[Comparison], verdict| part.iter().filter(|one| one.verdict == verdict).count();
        assert_eq!(count(&family[..20], Verdict::Lower), 20);
        let equal = count(&family[20..], Verdict::NoDifference);
        assert!(equal >= 120, "{equal} of 180");
        assert_eq!(equal + count(&family[20..], Verdict::NotShown), 180);
    }

    /// Each run makes a single comparison, so a false claim has a probability of 1 in 100.
    #[test]
    fn claims_and_intervals_of_equal_sides_stay_near_the_level() {
        let mut random = Rng::with_seed(4);
        let claims = (0..600)
            .filter(|number| {
                let count = 8 + number % 25;
                let first = exponential(&mut random, 1.0, count);
                let second = exponential(&mut random, 1.0, count);
                match number % 2 {
                    0 => compare(&first, &second),
                    _ => compare_rounds(&rounds(first), &rounds(second)),
                }
                .claims()
            })
            .count();
        assert!(claims <= 15, "{claims} of 600");
    }

    #[test]
    fn few_wide_samples_show_nothing_and_are_not_called_equal() {
        let first = [3.0, 15.0, 4.0, 9.0, 12.0, 5.0, 7.0, 14.0];
        let second = [4.0, 14.0, 5.0, 8.0, 13.0, 5.0, 8.0, 12.0];
        for (first, second) in [
            (&first[..], &second[..]),
            (&[1.0], &[1.0]),
            (&[], &[]),
            (&[100.0, 101.0, 102.0], &[1.0, 2.0, 3.0]),
        ] {
            assert_eq!(compare(first, second).verdict, Verdict::NotShown);
        }
    }

    #[test]
    fn rare_long_samples_have_one_verdict_in_a_run_and_between_two() {
        let mut random = Rng::with_seed(23);
        let first = launches(&mut random, 130.0, 42);
        for (every, times) in [(7, 2.0), (20, 4.0)] {
            let mut second = launches(&mut random, 130.0, 42);
            second.iter_mut().step_by(every).for_each(|it| *it *= times);
            let verdicts = [
                compare(&first, &second).verdict,
                compare_rounds(&rounds(first.clone()), &rounds(second)).verdict,
            ];
            assert_eq!(verdicts, [Verdict::NotShown; 2], "{every} {times}");
        }
    }

    #[test]
    fn a_difference_is_claimed_in_the_right_direction() {
        let mut random = Rng::with_seed(5);
        let (slow, fast) = (
            exponential(&mut random, 10.0, 50),
            exponential(&mut random, 2.0, 50),
        );
        assert_eq!(compare(&slow, &fast).verdict, Verdict::Lower);
        assert_eq!(compare(&fast, &slow).verdict, Verdict::Higher);
        assert!(compare(&slow, &fast).difference_percent.unwrap() < -70.0);
    }

    #[test]
    fn one_wild_sample_is_no_claim() {
        let calm = [5.0, 5.1, 5.2, 4.9, 5.0, 5.3, 4.8, 5.1, 5.0, 4.9];
        let mut wild = calm;
        wild[3] = 90.0;
        assert!(!compare(&calm, &wild).claims());
    }

    #[test]
    fn a_first_side_near_zero_has_a_difference_in_its_unit_and_no_percentage() {
        for first in [[0.0; 10], [0.3; 10]] {
            let comparison = compare(&first, &[100.3; 10]);
            assert_eq!(comparison.verdict, Verdict::Higher);
            assert_eq!(comparison.difference_percent, None);
            assert!(comparison.difference.unwrap() >= 100.0);
            assert!(comparison.interval.unwrap().low >= 100.0);
        }
        let zeros = compare(&[0.0; 10], &[0.0; 10]);
        assert_eq!(zeros.verdict, Verdict::NoDifference);
    }

    #[test]
    fn intervals_and_chances_are_corrected_for_their_number() {
        let mut random = Rng::with_seed(9);
        let first = rounds(launches(&mut random, 100.0, 30));
        let second = rounds(launches(&mut random, 95.0, 30));
        let mut family = vec![compare_rounds(&first, &second); 40];
        let alone = family[0].clone();
        correct(family.iter_mut().collect());
        let together = &family[0];
        let width = |it: &Comparison| it.interval_percent.map(|it| it.high - it.low).unwrap();
        assert!(width(together) > width(&alone));
        assert_eq!(together.comparisons, 40);
        assert!((together.p_adjusted - (alone.p_value * 40.0).min(1.0)).abs() < 1e-12);
    }

    #[test]
    fn the_fewest_rounds_can_carry_a_claim_and_one_less_cannot() {
        assert_eq!(too_few(1, (1, "engine"), 0), None);
        for comparisons in [1, 3, 9, 18] {
            let fewest = fewest_rounds(comparisons);
            let claims = |count: usize| {
                let side = |by: f64| (0..count).map(|k| (k, by + k as f64)).collect::<Vec<_>>();
                let mut family = vec![compare_rounds(&side(100.0), &side(300.0)); comparisons];
                correct(family.iter_mut().collect());
                family[0].claims()
            };
            assert!(claims(fewest) && !claims(fewest - 1), "{comparisons}");
            assert_eq!(too_few(fewest, (2, "engine"), comparisons), None);
            assert!(too_few(fewest - 1, (2, "engine"), comparisons).is_some());
        }
    }

    #[test]
    fn the_fewest_samples_can_carry_a_claim_and_one_less_cannot() {
        for comparisons in [1, 2, 6, 18] {
            let claims = |count: usize| {
                let side = |by: f64| (0..count).map(|k| by + k as f64).collect::<Vec<_>>();
                let mut family = vec![compare(&side(100.0), &side(300.0)); comparisons];
                correct(family.iter_mut().collect());
                family[0].claims()
            };
            let fewest = fewest_samples(comparisons);
            assert!(claims(fewest) && !claims(fewest - 1), "{comparisons}");
        }
    }

    #[test]
    fn samples_are_compared_with_those_of_their_round() {
        let first: Vec<(usize, f64)> = (0..12).map(|k| (k, 10.0 + (k * k) as f64)).collect();
        let mut second: Vec<(usize, f64)> = first.iter().map(|(k, v)| (*k, v * 1.05)).collect();
        second.remove(3);
        second.reverse();
        let comparison = compare_rounds(&first, &second);
        assert!((comparison.difference_percent.unwrap() - 5.0).abs() < 1e-9);
        assert_eq!(comparison.verdict, Verdict::Higher);
    }
}
