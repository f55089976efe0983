//! Inodes whose requests cost more than those of any sound image: one request at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cpu_workers::PiMutex;
use erofs_format::Nid;

use crate::cache::Cache;

/// Inodes that are remembered.
const REMEMBERED: u64 = 1024;

/// Inodes that had a request beyond half of its budget.
#[derive(Debug)]
pub(crate) struct HeavyInodes {
    /// A. There is one: others need not take the lock.
    any: AtomicBool,
    /// L: leaf lock. Whether a request of the inode is being served.
    served: PiMutex<Cache<Nid, Arc<AtomicBool>>>,
}

/// The right to serve a request of a heavy inode, until dropped.
#[derive(Debug)]
pub(crate) struct Turn(Arc<AtomicBool>);

impl HeavyInodes {
    pub(crate) fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            served: PiMutex::new(Cache::new(REMEMBERED)),
        }
    }

    /// Begins a request of an inode that may be heavy; `Err` while another one is served.
    pub(crate) fn enter(&self, nid: Nid) -> Result<Option<Turn>, ()> {
        if !self.any.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match self.served.lock().get(&nid) {
            Some(served) => take(served).map(Some),
            None => Ok(None),
        }
    }

    /// The request that is served turns out to be heavy; `Err` while another one is served.
    pub(crate) fn mark(&self, nid: Nid) -> Result<Turn, ()> {
        self.any.store(true, Ordering::Relaxed);
        let mut inodes = self.served.lock();
        if let Some(served) = inodes.get(&nid) {
            return take(served);
        }
        let served = Arc::new(AtomicBool::new(true));
        inodes.put(nid, Arc::clone(&served), 1);
        Ok(Turn(served))
    }
}

fn take(served: &Arc<AtomicBool>) -> Result<Turn, ()> {
    match served.swap(true, Ordering::Relaxed) {
        true => Err(()),
        false => Ok(Turn(Arc::clone(served))),
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heavy_inode_is_served_once_at_a_time_and_others_are_not_concerned() {
        let inodes = HeavyInodes::new();
        assert!(inodes.enter(7).unwrap().is_none());
        let turn = inodes.mark(7).unwrap();
        assert!(inodes.enter(7).is_err());
        assert!(inodes.mark(7).is_err());
        assert!(inodes.enter(8).unwrap().is_none());
        drop(turn);
        assert!(inodes.enter(7).unwrap().is_some());
        assert!(inodes.enter(7).unwrap().is_some(), "the turn before ended");
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let inodes = HeavyInodes::new();
        for nid in 0..=REMEMBERED {
            inodes.mark(nid).unwrap();
        }
        assert!(inodes.enter(0).unwrap().is_none());
        assert!(inodes.enter(REMEMBERED).unwrap().is_some());
    }
}
