//! How sure is a difference of averages? Both sides are drawn again, with replacement, many times
//! (Efron 1979); the middle of the outcomes is the interval.

use serde::Serialize;

use super::random::Random;
use super::summary::{mean, percentile};

/// Enough for the 0.5 and 99.5 per cent ends to stand on 20 outcomes each side.
const ROUNDS: usize = 4000;
/// One sample drawn again and again gives an interval of no width, and two hardly a wider one.
const FEWEST: usize = 3;
/// Fixed: the same samples always give the same interval.
const SEED: u64 = 0x0065_726f_6661_7374;

/// From `low` to `high`, in per cent of the first side's average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Is zero inside, so that "no difference" fits the samples?
    pub fn holds_zero(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

/// The interval of (average of second / average of first - 1) * 100 that holds with probability
/// 1 - `level`. None with too few samples to draw from, or with a first side whose average can be zero.
pub fn difference_interval(first: &[f64], second: &[f64], level: f64) -> Option<Interval> {
    if first.len().min(second.len()) < FEWEST {
        return None;
    }
    let mut random = Random::new(SEED);
    let outcomes: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let base = mean_of_draw(first, &mut random);
            (mean_of_draw(second, &mut random) / base - 1.0) * 100.0
        })
        .collect();
    if outcomes.iter().any(|outcome| !outcome.is_finite()) {
        return None;
    }
    Some(Interval {
        low: percentile(&outcomes, level * 50.0)?,
        high: percentile(&outcomes, 100.0 - level * 50.0)?,
    })
}

fn mean_of_draw(values: &[f64], random: &mut Random) -> f64 {
    let draw: Vec<f64> = values
        .iter()
        .map(|_| values[random.below(values.len())])
        .collect();
    mean(&draw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_difference_of_the_averages() {
        let first: Vec<f64> = (0..50).map(|k| 100.0 + f64::from(k % 7)).collect();
        let second: Vec<f64> = (0..50).map(|k| 50.0 + f64::from(k % 5)).collect();
        let interval = difference_interval(&first, &second, 0.05).unwrap();
        let difference = (mean(&second) / mean(&first) - 1.0) * 100.0;
        assert!(
            interval.low < difference && difference < interval.high,
            "{interval:?} {difference}"
        );
        assert!(interval.high - interval.low < 3.0 && !interval.holds_zero());
    }

    #[test]
    fn the_same_samples_give_the_same_interval() {
        let (first, second) = ([1.0, 2.0, 3.0, 9.0], [2.0, 2.5, 4.0]);
        assert_eq!(
            difference_interval(&first, &second, 0.05),
            difference_interval(&first, &second, 0.05)
        );
    }

    #[test]
    fn nothing_is_said_about_nothing_or_about_a_share_of_zero() {
        assert_eq!(difference_interval(&[], &[1.0], 0.05), None);
        assert_eq!(difference_interval(&[0.0; 5], &[1.0; 5], 0.05), None);
        assert_eq!(difference_interval(&[1.0, 2.0], &[3.0; 9], 0.05), None);
    }
}
