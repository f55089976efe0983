//! Compares two sides by more than their shift. A few launches that take twice as long do not
//! change the typical launch, but users wait for them. Averages and 90th percentiles must therefore
//! be similar as well.

use super::percentile;
use super::shift::Interval;
use sched_trace::stats::{deviation, mean};

/// Sides that differ by less than this, in per cent, count as equal.
pub const SAME_PERCENT: f64 = 10.0;

/// The quantile of the normal distribution for a 95 % interval. The average only confirms a shift,
/// whose interval is stricter; if the interval of the average were as strict, few equal sides would
/// be called equal.
const NORMAL: f64 = 1.959_963_984_540_054;

/// The second side's average and 90th percentile relative to those of the first, in per cent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) average: Option<f64>,
    /// The interval that contains `average` with a probability of 95 %.
    pub(super) interval: Option<Interval>,
    pub(super) p90: Option<f64>,
    /// Whether all samples of both sides are zero.
    nothing: bool,
}

impl Spread {
    /// The spread of samples of one run, in pairs from the same round.
    pub(super) fn of_rounds(first: &[f64], second: &[f64]) -> Spread {
        let (one, other) = (mean(first), mean(second));
        let relative = first.iter().zip(second).map(|(a, b)| b / other - a / one);
        let relative: Vec<f64> = relative.collect();
        let count = relative.len() as f64;
        let error = deviation(&relative, mean(&relative)) / count.sqrt();
        Spread::new(first, second, error, count - 1.0)
    }

    /// The spread of the samples of two runs (Welch).
    pub(super) fn of_sides(first: &[f64], second: &[f64]) -> Spread {
        let parts = [first, second].map(|side| {
            let average = mean(side);
            let variance = (deviation(side, average) / average).powi(2) / side.len() as f64;
            (variance, side.len() as f64 - 1.0)
        });
        let variance: f64 = parts.iter().map(|(variance, _)| variance).sum();
        let weights = parts.iter().map(|(part, free)| part * part / free);
        let free = variance * variance / weights.sum::<f64>();
        // If the samples do not vary, the degrees of freedom do not matter.
        let free = if variance > 0.0 { free } else { f64::INFINITY };
        Spread::new(first, second, variance.sqrt(), free)
    }

    /// Computes the spread; `error` is the standard error of the logarithm of the averages' ratio,
    /// with `free` degrees of freedom.
    fn new(first: &[f64], second: &[f64], error: f64, free: f64) -> Spread {
        let few = first.len().min(second.len()) < 2;
        let nothing = [first, second].concat().iter().all(|&value| value == 0.0);
        let ratio = mean(second) / mean(first);
        let is_ratio = ratio.is_finite() && ratio > 0.0;
        let around = |by: f64| percent(ratio.ln() + by * quantile(free) * error);
        let p90 = percentile(first, 90.0).zip(percentile(second, 90.0));
        let p90 = p90.filter(|(one, other)| *one > 0.0 && *other > 0.0);
        Spread {
            average: is_ratio.then(|| percent(ratio.ln())),
            interval: (is_ratio && !few).then(|| Interval {
                low: around(-1.0),
                high: around(1.0),
            }),
            p90: p90.map(|(one, other)| percent((other / one).ln())),
            nothing,
        }
    }

    /// Whether average and 90th percentile both differ by less than [`SAME_PERCENT`].
    pub(super) fn is_small(&self) -> bool {
        let small = |percent: f64| percent.abs() < SAME_PERCENT;
        let average = self
            .interval
            .is_some_and(|it| small(it.low) && small(it.high));
        self.nothing || average && self.p90.is_some_and(small)
    }
}

/// Converts a difference of logarithms to per cent.
pub(super) fn percent(shift: f64) -> f64 {
    (shift.exp() - 1.0) * 100.0
}

/// A quantile of Student's distribution with `free` degrees of freedom, by the Cornish-Fisher
/// expansion (Abramowitz and Stegun 26.7.5).
fn quantile(free: f64) -> f64 {
    let [x, x3, x5, x7] = [1, 3, 5, 7].map(|power| NORMAL.powi(power));
    x + (x3 + x) / (4.0 * free)
        + (5.0 * x5 + 16.0 * x3 + 3.0 * x) / (96.0 * free.powi(2))
        + (3.0 * x7 + 19.0 * x5 + 17.0 * x3 - 15.0 * x) / (384.0 * free.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (free, table) in [(8.0, 2.306), (19.0, 2.093), (49.0, 2.010)] {
            assert!((quantile(free) - table).abs() < 0.002, "{free}");
        }
        assert!((quantile(f64::INFINITY) - NORMAL).abs() < 1e-12);
        let outside = libm::erfc(NORMAL / std::f64::consts::SQRT_2);
        assert!((outside - 0.05).abs() < 1e-12);
    }

    #[test]
    fn a_few_long_samples_are_a_difference_of_the_average_and_of_the_90th_percentile() {
        let side = |every: usize| -> Vec<f64> {
            let long = |k: &usize| every > 0 && k.is_multiple_of(every);
            (0..42)
                .map(|k| (100.0 + (k % 5) as f64) * if long(&k) { 2.0 } else { 1.0 })
                .collect()
        };
        let (none, few) = (side(0), side(7));
        for spread in [
            Spread::of_sides(&none, &few),
            Spread::of_rounds(&none, &few),
        ] {
            assert!((spread.average.unwrap() - 14.0).abs() < 1.0, "{spread:?}");
            assert!(
                spread.p90.unwrap() > 90.0 && !spread.is_small(),
                "{spread:?}"
            );
        }
        assert!(Spread::of_sides(&none, &none).is_small());
        let rare = side(21);
        assert!(
            !Spread::of_sides(&none, &rare).is_small(),
            "the average tells"
        );
    }

    #[test]
    fn nothing_is_alike_and_too_few_samples_tell_nothing() {
        assert!(Spread::of_sides(&[0.0; 9], &[0.0; 9]).is_small());
        assert!(Spread::of_rounds(&[0.0; 9], &[0.0; 9]).is_small());
        for (first, second) in [(&[1.0][..], &[1.0][..]), (&[0.0; 9], &[1.0; 9])] {
            assert!(!Spread::of_sides(first, second).is_small());
        }
        assert!(Spread::of_sides(&[7.0; 9], &[7.0; 9]).is_small());
    }
}
