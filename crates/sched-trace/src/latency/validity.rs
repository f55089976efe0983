//! Validity: missing switches and wake-ups judged against the wake-ups of the threads they concern,
//! and notices.

use super::filter::Filter;
use super::report::{Report, Wait, WaitKind};
use crate::Notice;
use std::collections::{BTreeMap, BTreeSet};

/// More than one missing event in this many wake-ups makes the figures of a thread invalid.
const TOLERATED: u64 = 100;

/// Missing events of some threads, and what they are judged against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Switches of these threads that are missing.
    pub switches: u64,
    /// Times that they ran after a sleep without a wake-up in the trace.
    pub unexplained: u64,
    /// Wake-ups of these threads that led to a wait.
    pub wakeups: u64,
}

impl Missing {
    /// Whether too many are missing for the figures of these threads to be valid.
    pub fn spoils(self) -> bool {
        (self.switches + self.unexplained) * TOLERATED > self.wakeups
    }
}

impl Report {
    /// Missing events of the threads that `concerned` accepts.
    pub fn missing(&self, concerned: impl Fn(i32) -> bool) -> Missing {
        let of_kind = |wait: &&Wait| wait.kind == WaitKind::Wakeup && concerned(wait.pid);
        let wakeups = self.waits.iter().filter(of_kind);
        let of = |missing: &BTreeMap<i32, u64>| -> u64 {
            let concerned = missing.iter().filter(|(pid, _)| concerned(**pid));
            concerned.map(|(_, count)| count).sum()
        };
        Missing {
            // A switch concerns two threads, and is missing once.
            switches: of(&self.missing).min(self.missing_switches),
            unexplained: of(&self.unexplained),
            wakeups: wakeups.count() as u64,
        }
    }

    /// Missing events of the threads that have waits the filter accepts, or a name it accepts.
    pub fn missing_of(&self, filter: &Filter<'_>) -> Missing {
        if filter.accepts_all() {
            return self.missing(|_| true);
        }
        let concerned: BTreeSet<i32> = self.accepted(filter).map(|wait| wait.pid).collect();
        self.missing(|pid| concerned.contains(&pid))
    }

    /// False when events were lost or could not be read, or when too many switches or
    /// wake-ups are missing: the figures may be printed, but not relied on.
    pub fn is_valid(&self) -> bool {
        self.is_valid_for(&Filter::default())
    }

    /// The same for the threads that the filter accepts. Figures that are selected by the name of a
    /// work function are also invalid when the trace does not name all of them.
    pub fn is_valid_for(&self, filter: &Filter<'_>) -> bool {
        let spoils =
            |notice: &Notice| notice.spoils_figures() || filter.by_name() && notice.spoils_names();
        self.lost_events == 0
            && !self.notices.iter().any(spoils)
            && !self.missing_of(filter).spoils()
    }
}
