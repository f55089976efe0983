//! Results shared by the reading threads.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use erofast_cli::bar::Bar;

use super::report::{FAULTS, Fault};

/// Results of all threads.
#[derive(Debug)]
pub struct Found {
    /// Guarded by its own lock. Faults by position in the walk and offset; for each file's content,
    /// only the one at the lowest offset.
    faults: Mutex<BTreeMap<(usize, u64), Vec<Fault>>>,
    /// Guarded by its own lock. Offsets of the faults in broken files, by position in the walk; the
    /// rest of such a file is not read.
    broken: Mutex<HashMap<usize, u64>>,
    /// Guarded by its own lock. Files that match the manifest.
    matched: Mutex<u64>,
    /// Atomic. Number of faults kept.
    kept: AtomicUsize,
    pub left_out: AtomicU64,
    /// Counts the bytes read without a fault.
    pub bar: Bar,
}

impl Found {
    pub fn new(bar: Bar) -> Self {
        Self {
            faults: Mutex::default(),
            broken: Mutex::default(),
            matched: Mutex::default(),
            kept: AtomicUsize::new(0),
            left_out: AtomicU64::new(0),
            bar,
        }
    }

    pub fn matched(&self) -> MutexGuard<'_, u64> {
        self.matched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn faults(&self) -> MutexGuard<'_, BTreeMap<(usize, u64), Vec<Fault>>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a fault in a name or a directory; one position may have several faults.
    pub fn add(&self, order: usize, fault: Fault) {
        self.insert((order, 0), fault);
    }

    /// Adds a fault in a file's content: only the one at the lowest offset is kept.
    pub fn add_content(&self, order: usize, offset: u64, fault: Fault) {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        let key = |offset: u64| (order, offset.saturating_add(1));
        match broken.get(&order) {
            Some(&known) if known <= offset => return,
            Some(&known) => {
                self.faults().remove(&key(known));
            }
            None => {}
        }
        broken.insert(order, offset);
        self.insert(key(offset), fault);
    }

    fn insert(&self, key: (usize, u64), fault: Fault) {
        let mut faults = self.faults();
        if self.kept.load(Relaxed) >= FAULTS {
            self.left_out.fetch_add(1, Relaxed);
            return;
        }
        self.kept.fetch_add(1, Relaxed);
        faults.entry(key).or_default().push(fault);
    }

    pub fn is_broken(&self, order: usize) -> bool {
        self.broken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(&order)
    }
}
