//! How many blocks are worth a round trip.
//!
//! A block that is read far from all others takes a round trip. While the answer takes less time
//! than that, the blocks after it cost little, and save round trips if they are read.

use std::cell::Cell;
use std::time::Duration;

use crate::waiting::RUN;

/// Answers that fit before there is another block.
const STEPS: u64 = 4;

/// Learned from each answer, in parts of a block.
#[derive(Debug)]
pub struct Pace(Cell<u64>);

impl Default for Pace {
    fn default() -> Pace {
        Pace(Cell::new(STEPS))
    }
}

impl Pace {
    /// From 1 to as many as a range has.
    pub fn blocks(&self) -> u64 {
        self.0.get() / STEPS
    }

    /// A range of so many blocks began to arrive after `wait`, and took `transfer` from then on.
    pub fn learn(&self, blocks: u64, wait: Duration, transfer: Duration) {
        let (now, parts) = (self.blocks(), self.0.get());
        if blocks >= now && transfer < wait / 4 {
            self.0.set((parts + 1).min(RUN * STEPS));
        } else if blocks <= now && transfer > wait / 2 {
            self.0.set((parts - 1).max(STEPS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_way_with_room_carries_more_and_a_narrow_one_less() {
        let (pace, milliseconds) = (Pace::default(), Duration::from_millis);
        for _ in 0..99 {
            pace.learn(
                pace.blocks(),
                milliseconds(100),
                milliseconds(pace.blocks()),
            );
        }
        assert_eq!(pace.blocks(), RUN);
        for _ in 0..99 {
            pace.learn(1, milliseconds(20), milliseconds(11 * pace.blocks()));
        }
        assert_eq!(pace.blocks(), 1);
    }
}
