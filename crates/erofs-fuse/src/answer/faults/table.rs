//! The most recent faults, in bounded memory.

use std::time::SystemTime;

use erofs_engine::Change;
use serde::Serialize;

use super::fault::Fault;

/// Number of kinds of faults that are distinguished. The kind that occurred least recently is
/// forgotten, and counts as new if it occurs again.
pub(super) const KEPT: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct FaultTable {
    /// Ordered by time; the latest is last.
    pub(super) known: Vec<Known>,
    pub(super) totals: Totals,
    /// The change of the image's files, if there was one.
    pub(super) change: Option<Change>,
    /// Whether `change` was passed to the log, which may have refused it.
    change_logged: bool,
}

figures::figures! {
    /// Counts since the mount began.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
    pub(super) struct Totals {
        /// Requests that failed because of a fault in the image.
        pub(super) count: u64 => counter "faults_total",
        /// Number of different faults.
        pub(super) kinds: u64,
        /// Number of kinds that were logged.
        pub(super) logged: u64,
        /// Number of kinds not logged, because there were too many at a time or the log refused
        /// them.
        pub(super) not_logged: u64,
    }
}

/// One kind of fault.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) fault: Fault,
    pub(super) path: Option<Vec<u8>>,
    pub(super) count: u64,
    pub(super) first: SystemTime,
    pub(super) last: SystemTime,
    /// Whether the fault has not been passed to the log yet.
    waiting: bool,
}

impl FaultTable {
    /// Counts a fault; returns true if the fault is the first of its kind.
    pub(super) fn count(&mut self, fault: Fault, now: SystemTime) -> bool {
        self.totals.count += 1;
        let at = self
            .known
            .iter()
            .position(|known| known.fault.line == fault.line);
        if let Some(at) = at {
            let known = &mut self.known[at];
            (known.count, known.last) = (known.count + 1, now);
            self.known[at..].rotate_left(1);
            return false;
        }
        self.totals.kinds += 1;
        if self.known.len() == KEPT {
            let forgotten = self.known.remove(0);
            self.totals.not_logged += u64::from(forgotten.waiting);
        }
        self.known.push(Known {
            fault,
            path: None,
            count: 1,
            first: now,
            last: now,
            waiting: true,
        });
        true
    }

    /// Notes a change of the image; returns true if it is new.
    pub(super) fn changed(&mut self, change: Change) -> bool {
        let known = self.change.as_ref();
        let is_news = known.is_none_or(|known| change.is_certain && !known.is_certain);
        if is_news {
            (self.change, self.change_logged) = (Some(change), false);
        }
        is_news
    }

    /// The change, if it has not been passed to the log yet.
    pub(super) fn change_for_log(&mut self) -> Option<String> {
        let change = self.change.as_ref().filter(|_| !self.change_logged)?;
        self.change_logged = true;
        Some(change.line.clone())
    }

    /// The oldest fault that has not been passed to the log yet.
    pub(super) fn next_for_log(&mut self) -> Option<Known> {
        let next = self.known.iter_mut().find(|known| known.waiting)?;
        next.waiting = false;
        Some(next.clone())
    }

    /// Notes whether the fault from [`next_for_log`](Self::next_for_log) was logged.
    pub(super) fn asked_log(&mut self, asked: &Known, logged: bool) {
        self.totals.logged += u64::from(logged);
        self.totals.not_logged += u64::from(!logged);
        let same = |known: &&mut Known| known.fault.line == asked.fault.line;
        if let Some(known) = self.known.iter_mut().find(same) {
            known.path.clone_from(&asked.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(number: usize) -> Fault {
        Fault {
            line: number.to_string(),
            ..Fault::default()
        }
    }

    fn lines(table: &FaultTable) -> Vec<&str> {
        let known = table.known.iter();
        known.map(|known| &*known.fault.line).collect()
    }

    #[test]
    fn a_fault_is_new_once_and_then_counted() {
        let (mut table, now) = (FaultTable::default(), SystemTime::now());
        assert!(table.count(fault(1), now));
        assert!(table.count(fault(2), now));
        assert!(!table.count(fault(1), now));
        assert_eq!(lines(&table), ["2", "1"]);
        assert_eq!(table.known[1].count, 2);
        assert_eq!((table.totals.count, table.totals.kinds), (3, 2));
    }

    #[test]
    fn memory_is_bounded_and_what_was_forgotten_before_the_log_had_it_is_counted() {
        let mut table = FaultTable::default();
        for number in 0..10 * KEPT {
            table.count(fault(number), SystemTime::now());
        }
        assert_eq!(table.known.len(), KEPT);
        assert_eq!(table.totals.not_logged, 9 * KEPT as u64);
        assert!(table.count(fault(0), SystemTime::now()));
    }

    #[test]
    fn a_change_is_news_once_and_again_when_it_becomes_certain() {
        let mut table = FaultTable::default();
        assert_eq!(table.change_for_log(), None);
        let change = |is_certain: bool| Change {
            line: is_certain.to_string(),
            is_certain,
        };
        assert!(table.changed(change(false)));
        assert!(!table.changed(change(false)));
        assert_eq!(table.change_for_log().as_deref(), Some("false"));
        assert!(table.changed(change(true)));
        assert!(!table.changed(change(false)));
        assert_eq!(table.change_for_log().as_deref(), Some("true"));
        assert_eq!(table.change_for_log(), None);
    }

    #[test]
    fn the_log_is_asked_once_about_each() {
        let mut table = FaultTable::default();
        table.count(fault(1), SystemTime::now());
        table.count(fault(2), SystemTime::now());
        let mut first = table.next_for_log().unwrap();
        assert_eq!(first.fault.line, "1");
        first.path = Some(b"/x".to_vec());
        table.asked_log(&first, true);
        assert_eq!(table.known[0].path.as_deref(), Some(&b"/x"[..]));
        let second = table.next_for_log().unwrap();
        table.asked_log(&second, false);
        assert!(table.next_for_log().is_none());
        assert_eq!((table.totals.logged, table.totals.not_logged), (1, 1));
    }
}
