//! Switches that the kernel did not write, by the threads they concern.

use std::collections::BTreeMap;

/// Missing switches by thread.
#[derive(Clone, Debug, Default)]
pub(super) struct MissingSwitches(BTreeMap<i32, u64>);

impl MissingSwitches {
    /// A switch is missing between the thread that entered a CPU last and the one that left it now:
    /// the end of a wait of `left`, and the beginning of a sleep of `entered`.
    pub fn add(&mut self, entered: i32, left: i32) {
        for pid in [entered, left].into_iter().filter(|pid| *pid > 0) {
            *self.0.entry(pid).or_default() += 1;
        }
    }

    /// Number of those of the threads that `concerned` accepts.
    pub fn of(&self, concerned: impl Fn(i32) -> bool) -> u64 {
        let missing = self.0.iter().filter(|(pid, _)| concerned(**pid));
        missing.map(|(_, count)| count).sum()
    }
}
