//! Blocks that were given up a moment ago, so that readers need not wait for them again.
//!
//! The kernel reads ahead of read(2) and around a page fault. If such a request fails, the kernel
//! requests the pages again, one by one, before the program gets its error. For the program this is
//! a single read, so it has a single time limit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use remote_image::message::SAME_READ;

/// When and why each block was given up.
#[derive(Debug, Default)]
pub struct GivenUp {
    blocks: BTreeMap<u64, (Instant, String)>,
    last: Option<(Instant, String)>,
}

impl GivenUp {
    /// Notes that a reader waited for these blocks and gets an error.
    pub fn add(&mut self, blocks: &BTreeSet<u64>, why: &str) {
        let now = Instant::now();
        self.blocks.retain(|_, (when, _)| is_same_read(*when));
        let given_up = blocks.iter().map(|&block| (block, (now, why.to_owned())));
        self.blocks.extend(given_up);
        self.last = Some((now, why.to_owned()));
    }

    /// Why readers need not wait for these blocks; `None` unless all of them were given up.
    pub fn why(&self, blocks: &BTreeSet<u64>) -> Option<&str> {
        let is_recent = |(when, _): &&(Instant, String)| is_same_read(*when);
        let given_up = |block| self.blocks.get(block).filter(is_recent);
        let all: Option<Vec<_>> = blocks.iter().map(given_up).collect();
        Some(all?.first()?.1.as_str())
    }

    /// Why a block was last given up, if that was less than `limit` ago.
    pub fn last_within(&self, limit: Duration) -> Option<&str> {
        let (when, why) = self.last.as_ref()?;
        (when.elapsed() < limit).then_some(why)
    }
}

fn is_same_read(when: Instant) -> bool {
    when.elapsed() < SAME_READ
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks may come from several calls of `add`, but each of them must have been given up.
    #[test]
    fn all_blocks_of_a_moment_ago_are_remembered() {
        let set = |blocks: &[u64]| blocks.iter().copied().collect();
        let mut given_up = GivenUp::default();
        given_up.add(&set(&[1, 2, 3]), "one");
        given_up.add(&set(&[4, 5]), "other");
        assert_eq!(given_up.why(&set(&[2])), Some("one"));
        assert_eq!(given_up.why(&set(&[3, 4])), Some("one"));
        assert_eq!(given_up.why(&set(&[5, 6])), None);
        assert_eq!(given_up.last_within(SAME_READ), Some("other"));
        let ago = Instant::now() - 2 * SAME_READ;
        given_up.blocks.insert(2, (ago, String::new()));
        assert_eq!(given_up.why(&set(&[2])), None);
        given_up.add(&set(&[7]), "later");
        assert!(!given_up.blocks.contains_key(&2));
    }
}
