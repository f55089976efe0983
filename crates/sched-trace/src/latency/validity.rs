//! Validity: compares missing switches and wake-ups with all waits of the threads concerned, and
//! produces notices.

use super::filter::Filter;
use super::report::{Concerned, Report, WaitKind};
use crate::Notice;
use std::collections::{BTreeMap, BTreeSet};

/// More than one missing event per this many waits makes the figures of a thread invalid.
const TOLERATED: u64 = 100;

/// The same limit for a table in which only some rows are valid. It applies if the recorder counted
/// all events: in that case, the kernel did not write the missing ones, and each row says whether
/// it is affected.
const TOLERATED_IN_TABLE: u64 = 20;

/// Missing events of a set of threads, and the numbers of waits that they are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Missing switches of these threads.
    pub switches: u64,
    /// How often these threads ran after a sleep without a wake-up in the trace.
    pub unexplained: u64,
    /// Wake-ups of these threads that led to a wait.
    pub wakeups: u64,
    /// All waits of these threads, after wake-ups and preemptions.
    pub waits: u64,
}

impl Missing {
    /// Whether too many events are missing for the figures of these threads to be valid.
    pub fn spoils(self) -> bool {
        self.exceeds(TOLERATED)
    }

    fn exceeds(self, tolerated: u64) -> bool {
        (self.switches + self.unexplained) * tolerated > self.waits
    }
}

/// Missing events by thread, for each of the recordings in the trace: a complete recording does not
/// make up for an incomplete one.
pub(super) struct Tally {
    threads: BTreeMap<Concerned, Missing>,
    /// Waits that are left out. They affect only rows: a table as a whole still has most of its
    /// waits.
    left_out: BTreeMap<Concerned, u64>,
    parts: usize,
    /// Missing switches. A switch concerns two threads, but is missing only once.
    switches: u64,
}

impl Tally {
    /// The tally of all threads.
    pub fn of(report: &Report) -> Self {
        let mut threads: BTreeMap<Concerned, Missing> = BTreeMap::new();
        for wait in &report.waits {
            let part = report.completeness.part(wait.end_ns);
            let thread = threads.entry((part, wait.pid)).or_default();
            thread.waits += 1;
            thread.wakeups += u64::from(wait.kind == WaitKind::Wakeup);
        }
        for (of, count) in &report.missing {
            threads.entry(*of).or_default().switches += count;
        }
        for (of, count) in &report.unexplained {
            threads.entry(*of).or_default().unexplained += count;
        }
        Self {
            threads,
            left_out: report.left_out_of.clone(),
            parts: report.completeness.seams.len() + 1,
            switches: report.missing_switches,
        }
    }

    /// Missing events of the threads that `concerned` accepts, by recording.
    fn by_part(&self, concerned: &impl Fn(i32) -> bool) -> Vec<Missing> {
        let mut parts = vec![Missing::default(); self.parts];
        for ((part, _), missing) in self.threads.iter().filter(|((_, pid), _)| concerned(*pid)) {
            parts[*part].add(*missing);
        }
        for part in &mut parts {
            part.switches = part.switches.min(self.switches);
        }
        parts
    }

    /// Whether few enough events of these threads are missing from each recording.
    pub fn is_whole(&self, pids: &BTreeSet<i32>) -> bool {
        let mut parts = vec![Missing::default(); self.parts];
        for (at, part) in parts.iter_mut().enumerate() {
            let threads = pids.iter().filter_map(|pid| self.threads.get(&(at, *pid)));
            threads.for_each(|missing| part.add(*missing));
            let left_out = pids.iter().filter_map(|pid| self.left_out.get(&(at, *pid)));
            part.unexplained += left_out.sum::<u64>();
        }
        !parts.into_iter().any(Missing::spoils)
    }
}

impl Missing {
    fn add(&mut self, other: Self) {
        self.switches += other.switches;
        self.unexplained += other.unexplained;
        self.wakeups += other.wakeups;
        self.waits += other.waits;
    }
}

impl Report {
    /// Missing events of the threads that `concerned` accepts.
    pub fn missing(&self, concerned: impl Fn(i32) -> bool) -> Missing {
        let mut sum = Missing::default();
        let parts = Tally::of(self).by_part(&concerned);
        parts.into_iter().for_each(|part| sum.add(part));
        sum
    }

    /// Missing events of the threads that the filter accepts by name or by one of their waits.
    pub fn missing_of(&self, filter: &Filter<'_>) -> Missing {
        self.missing(self.concerned(filter))
    }

    /// Returns a function that accepts the threads with a wait that the filter accepts.
    fn concerned(&self, filter: &Filter<'_>) -> impl Fn(i32) -> bool + use<> {
        let of = || self.accepted(filter).map(|wait| wait.pid).collect();
        let concerned: Option<BTreeSet<i32>> = (!filter.accepts_all()).then(of);
        move |pid| {
            concerned
                .as_ref()
                .is_none_or(|concerned| concerned.contains(&pid))
        }
    }

    /// False if events were lost or could not be read, or if too many switches or wake-ups are
    /// missing: the figures may be printed, but not relied on.
    pub fn is_valid(&self) -> bool {
        self.is_valid_for(&Filter::default())
    }

    /// Like [`is_valid`](Self::is_valid), for the threads that the filter accepts. Figures that are
    /// selected by the name of a work function are also invalid if the trace does not name all
    /// functions.
    pub fn is_valid_for(&self, filter: &Filter<'_>) -> bool {
        self.is_readable(filter) && !self.misses_many(filter)
    }

    /// Whether individual rows may be relied on, whatever the kernel omitted: if the recorder
    /// counted all events and none was lost, each row says whether the kernel omitted events of its
    /// threads.
    pub fn has_rows(&self, filter: &Filter<'_>) -> bool {
        self.is_readable(filter) && self.completeness.is_counted
    }

    /// Whether too many switches and wake-ups of the threads that the filter accepts are missing.
    pub fn misses_many(&self, filter: &Filter<'_>) -> bool {
        let (tally, concerned) = (Tally::of(self), self.concerned(filter));
        let parts = tally.by_part(&concerned);
        let mut threads = tally.threads.iter().filter(|((_, pid), _)| concerned(*pid));
        let few = |part: &Missing| !part.exceeds(TOLERATED_IN_TABLE);
        let in_table = self.completeness.is_counted
            && parts.iter().all(few)
            && threads.any(|(_, thread)| thread.waits > 0 && !thread.spoils());
        !in_table && parts.into_iter().any(Missing::spoils)
    }

    /// The notice that too many events are missing for the figures of all threads together to be
    /// valid.
    pub(super) fn missing_notice(&self) -> Option<Notice> {
        let missing = self.missing(|_| true);
        let notice = Notice::MissingEvents {
            switches: missing.switches,
            unexplained: missing.unexplained,
            waits: missing.waits,
        };
        self.misses_many(&Filter::default()).then_some(notice)
    }

    /// Whether everything that the figures need is present and readable.
    pub(super) fn is_readable(&self, filter: &Filter<'_>) -> bool {
        let spoils =
            |notice: &Notice| notice.spoils_figures() || filter.by_name() && notice.spoils_names();
        self.lost_events == 0 && !self.notices.iter().any(spoils)
    }
}
