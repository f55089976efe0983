//! Events that the trace should have, by the threads they concern.

use std::collections::BTreeMap;

/// A number of missing events for each thread.
#[derive(Clone, Debug, Default)]
pub(super) struct PerThread(BTreeMap<i32, u64>);

impl PerThread {
    /// One more of `pid`; the idle task has no waits to miss.
    pub fn add(&mut self, pid: i32) {
        if pid > 0 {
            *self.0.entry(pid).or_default() += 1;
        }
    }

    /// Number of those of the threads that `concerned` accepts.
    pub fn of(&self, concerned: impl Fn(i32) -> bool) -> u64 {
        let missing = self.0.iter().filter(|(pid, _)| concerned(**pid));
        missing.map(|(_, count)| count).sum()
    }
}
