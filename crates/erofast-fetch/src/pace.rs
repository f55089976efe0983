//! How many blocks are worth a round trip, and how many ranges in flight fill the link.
//!
//! A block that is read far from all others takes a round trip. As long as the answer takes less
//! time than that, the blocks after it cost little, and save round trips if they are read. There
//! are only as many ranges in flight as the link has room for: more would only delay a reader that
//! waits.

use std::cell::Cell;
use std::time::Duration;

use crate::waiting::RUN;

/// Least ranges in flight: two, so that one is on its way while the other arrives.
const LEAST_RANGES: usize = 2;
const MOST_RANGES: usize = 16;

/// A time that readers do not notice.
const QUICK: Duration = Duration::from_millis(20);

/// Learned from each answer.
#[derive(Debug)]
pub struct Pace {
    blocks: Cell<u64>,
    ranges: Cell<usize>,
    /// Transfer time of a block.
    transfer: Cell<Duration>,
    /// The shortest time to the first byte of an answer.
    wait: Cell<Duration>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            blocks: Cell::new(1),
            ranges: Cell::new(4),
            transfer: Cell::new(QUICK),
            wait: Cell::new(Duration::MAX),
        }
    }
}

impl Pace {
    /// Number of blocks, from 1 to as many as a range has.
    pub fn blocks(&self) -> u64 {
        self.blocks.get()
    }

    /// Number of ranges in flight, while no reader waits.
    pub fn ranges(&self) -> usize {
        self.ranges.get()
    }

    /// Whether an idle link delivers a whole range within `QUICK`.
    pub fn is_quick(&self) -> bool {
        self.transfer.get() * RUN as u32 <= QUICK
    }

    /// The number of blocks that arrive during a round trip, per range in flight: up to this many
    /// unwanted blocks between two wanted ones cost nothing, while a request does.
    pub fn together(&self) -> u64 {
        let share = self.ranges() as u128 * self.transfer.get().as_nanos();
        match self.wait.get() {
            Duration::MAX => 1,
            wait => (wait.as_nanos() / share.max(1)).clamp(1, RUN.into()) as u64,
        }
    }

    /// Notes that a range of this many blocks began to arrive after `wait`, and then took
    /// `transfer`.
    pub fn learn(&self, blocks: u64, wait: Duration, transfer: Duration) {
        let (now, ranges) = (self.blocks(), self.ranges.get());
        if blocks >= now && transfer < wait / 4 {
            self.blocks.set((now + 1).min(RUN));
        } else if blocks <= now && transfer > wait / 2 {
            self.blocks.set((now - 1).max(1));
        }
        self.transfer.set(transfer / blocks.max(1) as u32);
        self.wait.set(self.wait.get().min(wait));
        // On a full link, answers come later the more ranges share it.
        if transfer < wait {
            self.ranges.set((ranges + 1).min(MOST_RANGES));
        } else if transfer > 4 * wait {
            self.ranges.set((ranges - 1).max(LEAST_RANGES));
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
                milliseconds(pace.blocks() / 4),
            );
        }
        assert_eq!((pace.blocks(), pace.ranges()), (RUN, MOST_RANGES));
        for _ in 0..99 {
            pace.learn(1, milliseconds(20), milliseconds(11 * pace.blocks()));
        }
        assert_eq!(pace.blocks(), 1);
        for _ in 0..99 {
            pace.learn(1, milliseconds(20), milliseconds(81));
        }
        assert_eq!((pace.ranges(), pace.is_quick()), (LEAST_RANGES, false));
        pace.learn(32, milliseconds(20), milliseconds(8));
        assert!(pace.is_quick());
    }

    #[test]
    fn what_arrives_while_a_request_is_on_its_way_is_read_together() {
        let (pace, milliseconds) = (Pace::default(), Duration::from_millis);
        assert_eq!(pace.together(), 1, "nothing is known");
        // 1 Gbit/s and 100 ms, then 100 Mbit/s and 20 ms.
        for _ in 0..20 {
            pace.learn(10, milliseconds(100), Duration::from_micros(1300));
        }
        assert_eq!(pace.together(), 48);
        for _ in 0..20 {
            pace.learn(4, milliseconds(20), Duration::from_micros(5200));
        }
        assert_eq!(pace.together(), 1);
    }
}
