//! Results shared by the reading threads.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use erofast_cli::bar::Bar;

use super::report::{FAULTS, Fault};

/// Results of all threads.
pub struct Found {
    /// Guarded by its own lock.
    results: Mutex<Results>,
    /// Counts the bytes read without a fault.
    pub bar: Bar,
}

#[derive(Debug, Default)]
pub struct Results {
    /// Faults by position in the walk and offset; for each file's content, only the one at the
    /// lowest offset.
    pub faults: BTreeMap<(usize, u64), Vec<Fault>>,
    /// Offsets of the faults in broken files, by position in the walk; the rest of such a file is
    /// not read.
    broken: HashMap<usize, u64>,
    /// Number of files that match the manifest.
    pub matched: u64,
    /// Number of faults kept, and number of faults for which there was no room.
    kept: usize,
    pub left_out: u64,
}

impl Found {
    pub fn new(bar: Bar) -> Self {
        Self {
            results: Mutex::default(),
            bar,
        }
    }

    pub fn results(&self) -> MutexGuard<'_, Results> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a fault in a name or a directory; one position may have several faults.
    pub fn add(&self, order: usize, fault: Fault) {
        self.results().insert((order, 0), fault);
    }

    /// Adds a fault in a file's content: only the one at the lowest offset is kept.
    pub fn add_content(&self, order: usize, offset: u64, fault: Fault) {
        let mut results = self.results();
        let key = |offset: u64| (order, offset.saturating_add(1));
        match results.broken.insert(order, offset) {
            Some(known) if known <= offset => {
                results.broken.insert(order, known);
                return;
            }
            Some(known) => match results.faults.remove(&key(known)) {
                Some(_) => results.kept -= 1,
                None => results.left_out -= 1,
            },
            None => {}
        }
        results.insert(key(offset), fault);
    }

    pub fn is_broken(&self, order: usize) -> bool {
        self.results().broken.contains_key(&order)
    }
}

impl Results {
    fn insert(&mut self, key: (usize, u64), fault: Fault) {
        if self.kept >= FAULTS {
            self.left_out += 1;
            return;
        }
        self.kept += 1;
        self.faults.entry(key).or_default().push(fault);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_is_replaced_takes_no_room() {
        let found = Found::new(Bar::on_stderr());
        let fault = || Fault::new(b"a", 1, "broken");
        (1..FAULTS).for_each(|order| found.add(order, fault()));
        found.add_content(FAULTS, 9, fault());
        found.add_content(FAULTS, 5, fault());
        found.add(FAULTS + 1, fault());
        let results = found.results();
        assert_eq!((results.faults.len(), results.left_out), (FAULTS, 1));
    }
}
