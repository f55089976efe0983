//! Limits the rate of the lines that a mount logs.

use std::time::{Duration, Instant};

/// Number of lines that may be logged in a burst.
const BURST: u32 = 20;

/// Interval after which one more line may be logged.
const INTERVAL: Duration = Duration::from_secs(3);

/// A token bucket that fills with time.
#[derive(Debug)]
pub(super) struct Rate {
    lines: u32,
    filled: Instant,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            lines: BURST,
            filled: now,
        }
    }

    /// Takes a token for one line; returns false if there is none.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let intervals = now.duration_since(self.filled).as_nanos() / INTERVAL.as_nanos();
        let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
        self.filled += INTERVAL.saturating_mul(intervals);
        self.lines = self.lines.saturating_add(intervals).min(BURST);
        let has = self.lines > 0;
        self.lines -= u32::from(has);
        has
    }

    /// Whether no further line may be logged at present.
    pub(super) fn is_empty(&self) -> bool {
        self.lines == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_a_line_each_interval() {
        let begin = Instant::now();
        let mut rate = Rate::new(begin);
        let passed = (0..100).filter(|_| rate.take(begin)).count();
        assert_eq!(passed, BURST as usize);
        assert!(rate.is_empty() && !rate.take(begin + INTERVAL / 2));
        assert!(rate.take(begin + INTERVAL) && !rate.take(begin + INTERVAL));
        let late = begin + INTERVAL * 1000;
        assert_eq!((0..100).filter(|_| rate.take(late)).count(), BURST as usize);
    }
}
