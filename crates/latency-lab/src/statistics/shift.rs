//! The shift from one side to the other, by Hodges and Lehmann (1963): the median of the shifts of
//! all pairs. Interval and p-value are computed from the same pairs, so they never contradict each
//! other. No distribution is assumed, which matters here because latencies have long tails.
//!
//! * Samples of the same rounds: a pair is the average of the shifts of any two rounds (Walsh), and
//!   the number of pairs above zero has the distribution of Wilcoxon's signed ranks (1945). Effects
//!   common to a round, such as a slow moment of the machine, cancel out.
//! * Samples of two runs: the pairs consist of one sample from each side (Mann and Whitney 1947).

use serde::{Deserialize, Serialize};

/// Above this number of rounds, or of samples of both sides together, the normal approximation is
/// used.
const EXACT_ROUNDS: usize = 100;
const EXACT_SIDES: usize = 40;

/// An interval from `low` to `high`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The shifts of all pairs in ascending order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Shifts {
    sorted: Vec<f64>,
    /// For each number from zero to half the number of pairs, the probability that at most this
    /// many pairs are below zero if there is no difference.
    chances: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Samples {
    /// The shifts are those of this many rounds.
    Rounds(usize),
    /// The shifts are those between this many samples of the first side and this many of the
    /// second.
    Sides(usize, usize),
}

impl Shifts {
    /// The shifts between the two samples of each round.
    pub(super) fn of_rounds(pairs: &[(f64, f64)]) -> Shifts {
        let shifts: Vec<f64> = pairs.iter().map(|(first, second)| second - first).collect();
        let from = |(at, one)| shifts[at..].iter().map(move |other: &f64| (one, other));
        let pairs = shifts.iter().enumerate().flat_map(from);
        Shifts::sort(
            pairs
                .map(|(one, other): (&f64, _)| (one + other) / 2.0)
                .collect(),
            Samples::Rounds(shifts.len()),
        )
    }

    /// The shifts between the samples of two runs.
    pub(super) fn of_sides(first: &[f64], second: &[f64]) -> Shifts {
        let pairs = first.iter().flat_map(|a| second.iter().map(move |b| b - a));
        Shifts::sort(pairs.collect(), Samples::Sides(first.len(), second.len()))
    }

    fn sort(mut sorted: Vec<f64>, samples: Samples) -> Shifts {
        sorted.sort_unstable_by(f64::total_cmp);
        let chances = samples.chances();
        Shifts { sorted, chances }
    }

    /// The median shift; none without samples.
    pub(super) fn median(&self) -> Option<f64> {
        let middle = self.sorted.len().checked_sub(1)?;
        Some((self.sorted[middle / 2] + self.sorted[middle.div_ceil(2)]) / 2.0)
    }

    /// The fraction of all pairs that are below zero, where a pair at zero counts half.
    pub(super) fn below_zero(&self) -> f64 {
        match self.sorted.len() {
            0 => 0.5,
            all => self.half_below() as f64 / (2 * all) as f64,
        }
    }

    /// Twice the number of pairs below zero, where a pair at zero counts half.
    fn half_below(&self) -> usize {
        let below = self.sorted.partition_point(|&shift| shift < 0.0);
        below + self.sorted.partition_point(|&shift| shift <= 0.0)
    }

    /// The probability that the numbers of pairs below and above zero differ at least this much, in
    /// either direction, if there is no difference between the sides. With ties the result is too
    /// high.
    pub(super) fn p_value(&self) -> f64 {
        let half = self.half_below();
        let fewer = half.min(2 * self.sorted.len() - half).div_ceil(2);
        let chance = self.chances.get(fewer).copied().unwrap_or(1.0);
        (2.0 * chance).min(1.0)
    }

    /// The interval that contains the shift with a probability of `1 - level`. None if there are
    /// too few samples.
    pub(super) fn interval(&self, level: f64) -> Option<Interval> {
        let within = |chance: &f64| *chance <= level / 2.0;
        let outside = self.chances.partition_point(within).checked_sub(1)?;
        Some(Interval {
            low: *self.sorted.get(outside)?,
            high: *self
                .sorted
                .get(self.sorted.len().checked_sub(outside + 1)?)?,
        })
    }
}

impl Samples {
    fn chances(self) -> Vec<f64> {
        let half = self.pairs() / 2;
        let Some(exact) = self.exact() else {
            return (0..=half)
                .map(|count| self.approximate(count as f64))
                .collect();
        };
        let sums = exact.iter().scan(0.0, |sum, chance| {
            *sum += chance;
            Some(*sum)
        });
        sums.take(half + 1).collect()
    }

    fn pairs(self) -> usize {
        match self {
            Samples::Rounds(rounds) => rounds * (rounds + 1) / 2,
            Samples::Sides(first, second) => first * second,
        }
    }

    /// The probability of each number of pairs below zero, starting with 0; none if computing them
    /// is too much work.
    fn exact(self) -> Option<Vec<f64>> {
        let mut chances = vec![0.0; self.pairs() + 1];
        match self {
            // Each rank is positive or negative, each with a probability of one half.
            Samples::Rounds(rounds) if rounds <= EXACT_ROUNDS => {
                chances[0] = 1.0;
                for rank in 1..=rounds {
                    for sum in (0..chances.len()).rev() {
                        let with = sum.checked_sub(rank).map_or(0.0, |rest| chances[rest]);
                        chances[sum] = (chances[sum] + with) / 2.0;
                    }
                }
            }
            // The probability that the greatest sample is from the first side is that side's share
            // of the samples. If it is, all pairs with that sample are below zero, otherwise none
            // are.
            Samples::Sides(first, second) if first + second <= EXACT_SIDES => {
                let mut of = vec![vec![0.0; chances.len()]; second + 1];
                for row in &mut of {
                    row[0] = 1.0;
                }
                for a in 1..=first {
                    for b in 1..=second {
                        let share = a as f64 / (a + b) as f64;
                        let (before, here) = of.split_at_mut(b);
                        for count in (0..=a * b).rev() {
                            let below = count.checked_sub(b).map_or(0.0, |rest| here[0][rest]);
                            here[0][count] = share * below + (1.0 - share) * before[b - 1][count];
                        }
                    }
                }
                chances = of.swap_remove(second);
            }
            _ => return None,
        }
        Some(chances)
    }

    /// The probability of at most `count` pairs below zero, by the normal approximation with a
    /// continuity correction.
    fn approximate(self, count: f64) -> f64 {
        let pairs = self.pairs() as f64;
        let variance = match self {
            Samples::Rounds(rounds) => pairs * (2 * rounds + 1) as f64 / 12.0,
            Samples::Sides(first, second) => pairs * (first + second + 1) as f64 / 12.0,
        };
        let deviations = (pairs / 2.0 - count - 0.5) / variance.sqrt();
        libm::erfc(deviations / std::f64::consts::SQRT_2) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    fn of_two_sides(first: &[f64], second: &[f64]) -> f64 {
        Shifts::of_sides(first, second).p_value()
    }

    /// The values are from the tables of Mann and Whitney and of Wilcoxon; R's wilcox.test gives
    /// the same results.
    #[test]
    fn exact_chances_are_those_of_the_tables() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(of_two_sides(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.1);
        near(of_two_sides(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0]), 0.2);
        near(
            of_two_sides(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]),
            2.0 / 252.0,
        );
        let rounds: Vec<(f64, f64)> = (1..=8).map(|k| (0.0, f64::from(k))).collect();
        near(Shifts::of_rounds(&rounds).p_value(), 2.0 / 256.0);
        near(Samples::Rounds(10).chances()[8], 25.0 / 1024.0);
    }

    #[test]
    fn the_approximation_continues_the_exact_chances() {
        for samples in [Samples::Rounds(60), Samples::Sides(18, 22)] {
            let middle = samples.pairs() / 2;
            for count in [middle, middle * 3 / 4, middle / 2] {
                let (exact, about) = (samples.chances()[count], samples.approximate(count as f64));
                assert!(
                    (exact - about).abs() < 0.002,
                    "{samples:?} {count}: {exact} {about}"
                );
            }
        }
    }

    #[test]
    fn the_interval_excludes_zero_exactly_where_the_chance_is_below_the_level() {
        let mut random = Rng::with_seed(7);
        for number in 0..400 {
            let count = 6 + number % 20;
            let shift = random.f64() * 2.0;
            let mut side = |by: f64| (0..count).map(|_| by + random.f64()).collect::<Vec<f64>>();
            let (first, second) = (side(0.0), side(shift));
            let pairs: Vec<(f64, f64)> = first.iter().copied().zip(second.clone()).collect();
            for shifts in [Shifts::of_sides(&first, &second), Shifts::of_rounds(&pairs)] {
                let excludes = shifts
                    .interval(0.05)
                    .is_some_and(|interval| interval.low > 0.0 || interval.high < 0.0);
                assert_eq!(excludes, shifts.p_value() <= 0.05, "{number}");
            }
        }
    }

    #[test]
    fn what_a_round_has_in_common_cancels_out() {
        // From round to round the machine slows down by far more than the sides differ.
        let rounds: Vec<(f64, f64)> = (0..12)
            .map(|k| (f64::from(k * k), f64::from(k * k) + 1.0))
            .collect();
        let shifts = Shifts::of_rounds(&rounds);
        assert_eq!(shifts.median(), Some(1.0));
        assert!(shifts.p_value() < 0.001);
        let (first, second): (Vec<f64>, Vec<f64>) = rounds.into_iter().unzip();
        assert!(of_two_sides(&first, &second) > 0.5);
    }

    #[test]
    fn ties_and_no_samples_make_no_difference() {
        assert_eq!(of_two_sides(&[5.0; 9], &[5.0; 9]), 1.0);
        assert_eq!(Shifts::of_rounds(&[(5.0, 5.0); 9]).p_value(), 1.0);
        let none = Shifts::of_rounds(&[]);
        assert_eq!((none.median(), none.interval(0.5)), (None, None));
        assert_eq!((none.p_value(), none.below_zero()), (1.0, 0.5));
    }

    #[test]
    fn three_rounds_have_no_interval_of_99_per_cent_and_eight_have() {
        let rounds = |count| Shifts::of_rounds(&vec![(1.0, 2.0); count]).interval(0.01);
        assert_eq!(rounds(3), None);
        assert_eq!(
            rounds(8),
            Some(Interval {
                low: 1.0,
                high: 1.0
            })
        );
    }
}
