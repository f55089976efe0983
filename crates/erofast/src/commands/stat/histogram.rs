//! Histograms whose buckets are powers of two, as in `stat --json`.

use erofast_cli::units;
use serde_json::Value;

/// Columns of the longest bar.
const BAR: u64 = 40;

/// Bucket `n` holds values from 2^n up to, but not including, 2^(n+1).
#[derive(Debug, Default)]
pub struct Histogram(Vec<(u32, u64)>);

impl Histogram {
    /// Parses `{"buckets": [[n, times], ...]}`.
    pub fn of(value: &Value) -> Self {
        let buckets = value["buckets"].as_array();
        let pair = |pair: &Value| Some((u32::try_from(pair[0].as_u64()?).ok()?, pair[1].as_u64()?));
        Self(buckets.into_iter().flatten().filter_map(pair).collect())
    }

    /// Subtracts the counts of `before`.
    pub fn since(mut self, before: &Self) -> Self {
        for (n, times) in &mut self.0 {
            let known = before.0.iter().find(|(other, _)| other == n);
            *times = times.saturating_sub(known.map_or(0, |(_, times)| *times));
        }
        self.0.retain(|(_, times)| *times > 0);
        self
    }

    /// The total number of values.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, times)| times).sum()
    }

    /// The value below which this fraction of all values lies; `None` if nothing was counted.
    /// Within a bucket the values are assumed to be evenly distributed on a logarithmic scale, so
    /// the result may be wrong by a factor of two.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let wanted = part * self.count() as f64;
        let mut below = 0.0;
        for &(n, times) in &self.0 {
            let times = times as f64;
            if below + times >= wanted && times > 0.0 {
                return Some(f64::from(n).exp2() * ((wanted - below) / times).exp2());
            }
            below += times;
        }
        None
    }

    /// A line for each bucket that is not empty.
    pub fn draw(&self) -> String {
        let most = self.0.iter().map(|(_, times)| *times).max().unwrap_or(1);
        let line = |&(n, times): &(u32, u64)| {
            let bar = "#".repeat((times * BAR).div_ceil(most) as usize);
            let from = units::time(f64::from(n).exp2());
            format!("  {from:>8} {times:>10} {bar}\n")
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantiles_are_within_their_bucket() {
        let histogram = Histogram::of(&json!({"buckets": [[10, 90], [20, 10]]}));
        let at = |part| histogram.quantile(part).expect("counted");
        assert!((1024.0..=2048.0).contains(&at(0.5)), "{}", at(0.5));
        assert!(
            (1_048_576.0..=2_097_152.0).contains(&at(0.99)),
            "{}",
            at(0.99)
        );
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn what_was_there_before_is_taken_off() {
        let before = Histogram::of(&json!({"buckets": [[3, 5], [4, 1]]}));
        let now = Histogram::of(&json!({"buckets": [[2, 1], [3, 5], [4, 3]]})).since(&before);
        assert_eq!(now.0, [(2, 1), (4, 2)]);
        assert_eq!(now.draw().lines().count(), 2);
    }
}
