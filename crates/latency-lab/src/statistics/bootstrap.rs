//! The interval of a difference of averages, by the studentised bootstrap.
//!
//! Both sides are drawn again, with replacement, many times (Efron 1979). What is drawn is not the
//! difference itself but its distance from the measured one in standard errors, which hardly
//! depends on the unknown distribution (Hall 1988, the symmetric form). Plain percentiles of the
//! difference are too narrow for few samples with long tails: [`coverage`](tests) compares them.

use serde::Serialize;

use super::random::Random;
use sched_trace::stats::{deviation, mean, percentile};

/// The 99th percentile of 4000 rounds has 40 outcomes beyond it.
const ROUNDS: usize = 4000;
/// Of two samples many draws are the same value twice, which has no standard error.
const FEWEST: usize = 3;
/// Fixed: the same samples always have the same interval.
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
    /// Whether zero is inside, so that "no difference" fits the samples.
    pub fn holds_zero(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }

    /// Whether `percent` is inside.
    pub fn holds(&self, percent: f64) -> bool {
        self.low <= percent && percent <= self.high
    }
}

/// Average and squared standard error of one side.
#[derive(Clone, Copy)]
struct Side {
    average: f64,
    error: f64,
}

impl Side {
    fn of(values: &[f64]) -> Side {
        let average = mean(values);
        let deviation = deviation(values, average);
        Side {
            average,
            error: deviation * deviation / values.len() as f64,
        }
    }
}

/// On which scale the ratio of the averages is studentised.
#[derive(Clone, Copy)]
enum Scale {
    /// Where all samples are positive: the distribution of the logarithm is closer to symmetric.
    Logarithm,
    /// Where samples are zero.
    Plain,
}

impl Scale {
    /// The ratio second to first on this scale, and its standard error by the delta method.
    fn estimate(self, first: Side, second: Side) -> (f64, f64) {
        let ratio = second.average / first.average;
        match self {
            Scale::Logarithm => {
                let error =
                    first.error / first.average.powi(2) + second.error / second.average.powi(2);
                (ratio.ln(), error.sqrt())
            }
            Scale::Plain => {
                let error = second.error + ratio * ratio * first.error;
                (ratio, error.sqrt() / first.average)
            }
        }
    }

    fn percent(self, value: f64) -> f64 {
        match self {
            Scale::Logarithm => (value.exp() - 1.0) * 100.0,
            Scale::Plain => (value - 1.0) * 100.0,
        }
    }
}

/// The interval of (average of second / average of first - 1) * 100 that holds with probability
/// 1 - `level`. None with too few samples for one, or with a first side whose average can be zero.
pub fn difference_interval(first: &[f64], second: &[f64], level: f64) -> Option<Interval> {
    if first.len().min(second.len()) < FEWEST || mean(first) <= 0.0 {
        return None;
    }
    let positive = first.iter().chain(second).all(|&value| value > 0.0);
    let scale = if positive {
        Scale::Logarithm
    } else {
        Scale::Plain
    };
    let (measured, error) = scale.estimate(Side::of(first), Side::of(second));
    let mut random = Random::new(SEED);
    let distances: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let sides = (draw(first, &mut random), draw(second, &mut random));
            let (drawn, error) = scale.estimate(sides.0, sides.1);
            distance(drawn - measured, error)
        })
        .collect();
    let reach = percentile(&distances, 100.0 - level * 100.0)? * error;
    let (low, high) = (measured - reach, measured + reach);
    (low.is_finite() && high.is_finite()).then(|| Interval {
        low: scale.percent(low),
        high: scale.percent(high),
    })
}

/// In standard errors. A draw without any spread is infinitely far from what it differs from.
fn distance(difference: f64, error: f64) -> f64 {
    match difference.abs() {
        0.0 => 0.0,
        far => far / error,
    }
}

fn draw(values: &[f64], random: &mut Random) -> Side {
    let draw: Vec<f64> = values
        .iter()
        .map(|_| values[random.below(values.len())])
        .collect();
    Side::of(&draw)
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
        assert!(interval.holds(difference), "{interval:?} {difference}");
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
    fn there_is_no_interval_of_too_few_samples_or_of_a_share_of_zero() {
        assert_eq!(difference_interval(&[], &[1.0], 0.05), None);
        assert_eq!(difference_interval(&[0.0; 5], &[1.0; 5], 0.05), None);
        assert_eq!(difference_interval(&[1.0, 2.0], &[3.0; 9], 0.05), None);
    }

    #[test]
    fn zeros_on_the_second_side_are_a_difference_of_the_whole() {
        let interval = difference_interval(&[5.0, 6.0, 7.0, 8.0], &[0.0; 4], 0.01).unwrap();
        assert_eq!((interval.low, interval.high), (-100.0, -100.0));
    }

    /// How often the interval holds the true difference, for sides of `count` samples of one
    /// distribution.
    fn coverage(count: usize, runs: usize, sample: impl Fn(&mut Random) -> f64) -> f64 {
        let mut random = Random::new(count as u64);
        let held = (0..runs).filter(|_| {
            let mut side = || {
                (0..count)
                    .map(|_| sample(&mut random))
                    .collect::<Vec<f64>>()
            };
            let (first, second) = (side(), side());
            difference_interval(&first, &second, 0.01).is_none_or(|interval| interval.holds_zero())
        });
        held.count() as f64 / runs as f64
    }

    fn exponential(random: &mut Random) -> f64 {
        -(1.0 - random.unit()).ln()
    }

    /// Box and Muller (1958).
    fn normal(random: &mut Random) -> f64 {
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * random.unit()).cos()
    }

    type Distribution = (&'static str, fn(&mut Random) -> f64);

    /// Long tails as latencies have: one launch of ten stalls; log-normal; exponential.
    const DISTRIBUTIONS: [Distribution; 4] = [
        ("bell", |random| 10.0 + normal(random)),
        ("exponential", exponential),
        ("log-normal", |random| normal(random).exp()),
        ("stalls", |random| {
            let stall = if random.below(10) == 0 { 8.0 } else { 0.0 };
            1.0 + stall * exponential(random) + 0.2 * exponential(random)
        }),
    ];

    /// `EROFAST_TEST_RUNS=2000 cargo test -p latency-lab coverage -- --nocapture` prints the table
    /// of docs/notebook/lab.md.
    #[test]
    fn coverage_of_the_99_per_cent_interval_holds_for_few_samples_and_long_tails() {
        let runs = std::env::var("EROFAST_TEST_RUNS").ok();
        let runs = runs.and_then(|runs| runs.parse().ok()).unwrap_or(150);
        for (name, sample) in DISTRIBUTIONS {
            for count in [5, 10, 20, 50] {
                let coverage = coverage(count, runs, sample);
                println!("{name:<12} n = {count:<3} {coverage:.4}");
                // Below this, 99 % is out of reach of chance in so few runs (p < 0.0001).
                assert!(
                    coverage >= 0.95,
                    "{name}, {count} samples a side: {coverage}"
                );
            }
        }
    }
}
