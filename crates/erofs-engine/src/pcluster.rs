//! Pclusters in flight and cached pclusters: no pcluster is decoded twice at the same time.
//!
//! A reader claims a pcluster in the [`PclusterTable`]. It gets the decoded bytes if they are
//! cached, or waits for the thread that decodes them now, or becomes that thread. A pcluster is
//! claimed by the thread that decodes it and at the moment it begins, never by a queued request:
//! a waiter therefore always waits for a running thread.
//!
//! The table also learns whether pclusters that were read in part are read again ([`Reuse`]). Where
//! none of them is cached, their keys are remembered, as many as there could be pclusters.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use erofs_format::Pcluster;

use crate::Error;
use crate::cache::Cache;
use crate::decoded::Decoded;
use crate::in_flight::{InFlight, Outcome};
use crate::reuse::Reuse;
use crate::sync::{PiMutex, PiMutexGuard, lock};

/// Identity of a pcluster. The stored length and the coding belong to it: a crafted image may
/// describe one address in several ways, and each must see its own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(Pcluster);

impl Key {
    pub(crate) fn of(pcluster: &Pcluster) -> Self {
        // How much of the stream one extent uses does not make it another stream.
        Self(Pcluster {
            decoded_length: 0,
            partial: false,
            ..*pcluster
        })
    }
}

#[cfg(test)]
impl Key {
    /// Some pcluster, always the same one.
    pub(crate) fn example() -> Self {
        use erofs_format::{Algorithm, Coding, Location};
        Self::of(&Pcluster {
            location: Location {
                device: 0,
                metabox: false,
                physical: 4096,
            },
            length: 4096,
            coding: Coding::Compressed(Algorithm::Lz4),
            decoded_length: 0,
            partial: false,
            inline: false,
        })
    }
}

/// A cached pcluster.
#[derive(Debug)]
struct CachedPcluster {
    decoded: Arc<Decoded>,
    /// It was read again.
    asked_again: bool,
    /// Where the last read of it ended.
    next: usize,
    /// The first read began at its first byte, and each other one where the last one had ended.
    in_order: bool,
}

/// Decoded bytes of a usual pcluster (128 KiB). The budget divided by it is the number of keys that
/// are remembered.
const USUAL_BYTES: u64 = 128 << 10;

/// Result of claiming a pcluster.
#[derive(Debug)]
pub(crate) enum Claim<'a> {
    /// Its bytes, at least as many as claimed.
    Cached(Arc<Decoded>),
    /// Another thread is decoding it.
    InFlight(Arc<InFlight>),
    /// The caller decodes it, then ends the lease.
    Leader(DecodeLease<'a>),
}

/// L: table lock, held for lookups only and never while decoding or waiting.
#[derive(Debug)]
pub(crate) struct PclusterTable {
    inner: PiMutex<Inner>,
    /// I. Bytes that may be cached.
    budget: u64,
}

#[derive(Debug)]
struct Inner {
    /// L. One entry for each pcluster that a thread is decoding.
    in_flight: HashMap<Key, Arc<InFlight>>,
    /// L. Least recently used first.
    cached: Cache<Key, CachedPcluster>,
    /// L. Pclusters that were read in part and not cached.
    uncached: Cache<Key, ()>,
    /// L. How often either was read again.
    reuse: Reuse,
}

impl Inner {
    /// Accounts for a cached pcluster that is dropped.
    fn gone(reuse: &mut Reuse, cached: &CachedPcluster) {
        if !cached.asked_again {
            reuse.record(false);
        }
    }
}

impl PclusterTable {
    pub(crate) fn new(budget: u64) -> Self {
        let inner = Inner {
            in_flight: HashMap::new(),
            cached: Cache::new(budget),
            uncached: Cache::new(budget / USUAL_BYTES),
            reuse: Reuse::default(),
        };
        Self {
            inner: PiMutex::new(inner),
            budget,
        }
    }

    /// Returns the cached prefix that covers `wanted`, or claims the pcluster for decoding.
    pub(crate) fn claim(&self, key: Key, wanted: Range<usize>) -> Claim<'_> {
        let mut inner = self.lock();
        let Inner {
            in_flight,
            cached,
            uncached,
            reuse,
        } = &mut *inner;
        if let Some(found) = cached.get_mut(&key) {
            if !std::mem::replace(&mut found.asked_again, true) {
                reuse.record(true);
            }
            if found.decoded.bytes().len() >= wanted.end {
                found.in_order &= found.next == wanted.start;
                found.next = wanted.end;
                return Claim::Cached(found.decoded.clone());
            }
        } else if uncached.take(&key).is_some() {
            reuse.record(true);
        }
        match in_flight.entry(key) {
            Entry::Occupied(in_flight) => Claim::InFlight(in_flight.get().clone()),
            Entry::Vacant(place) => {
                let in_flight = place.insert(Arc::default()).clone();
                Claim::Leader(DecodeLease {
                    table: self,
                    key,
                    wanted,
                    in_flight,
                    reuse: *reuse,
                })
            }
        }
    }

    /// Reports that a cached pcluster was read to its last byte. It is dropped next, or at once if
    /// a stream has read it from its first byte on.
    pub(crate) fn finished(&self, key: Key) {
        let mut inner = self.lock();
        if inner.cached.get(&key).is_some_and(|cached| cached.in_order) {
            let gone = inner.cached.take(&key);
            drop(inner);
            drop(gone);
        } else {
            inner.cached.demote(&key);
        }
    }

    /// Drops the least recently used pcluster; false if none is cached.
    pub(crate) fn displace_oldest(&self) -> bool {
        let mut inner = self.lock();
        let gone = inner.cached.pop();
        gone.iter()
            .for_each(|cached| Inner::gone(&mut inner.reuse, cached));
        drop(inner);
        gone.is_some()
    }

    /// Bytes that may be cached.
    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes cached now, and bytes that may be cached.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.lock().cached.weight(), self.budget)
    }

    fn lock(&self) -> PiMutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

/// The duty to decode a claimed pcluster. Dropped without an outcome (a panic), it sends the
/// waiters back to the table, where one of them takes over.
#[derive(Debug)]
pub(crate) struct DecodeLease<'a> {
    table: &'a PclusterTable,
    key: Key,
    /// I. The bytes that the decoding reader wants.
    wanted: Range<usize>,
    in_flight: Arc<InFlight>,
    reuse: Reuse,
}

impl DecodeLease<'_> {
    /// How likely it is that this pcluster is read again.
    pub(crate) fn reuse(&self) -> Reuse {
        self.reuse
    }

    /// Ends with bytes for the waiters; the caller keeps them alive, not the cache.
    pub(crate) fn publish(self, decoded: Arc<Decoded>) {
        self.end(Ok(Some(decoded)));
    }

    /// Ends with bytes for the waiters and for the cache.
    pub(crate) fn cache(self, decoded: Arc<Decoded>) {
        let weight = decoded.memory() as u64;
        let cached = CachedPcluster {
            decoded: decoded.clone(),
            asked_again: false,
            next: self.wanted.end,
            in_order: self.wanted.start == 0,
        };
        let mut inner = self.table.lock();
        let gone = inner.cached.put(self.key, cached, weight);
        gone.iter()
            .for_each(|cached| Inner::gone(&mut inner.reuse, cached));
        // Memory is released outside of the lock.
        drop(inner);
        drop(gone);
        self.end(Ok(Some(decoded)));
    }

    /// Remembers that the pcluster was read in part and not cached.
    pub(crate) fn record_uncached(&self) {
        let mut inner = self.table.lock();
        for () in inner.uncached.put(self.key, (), 1) {
            inner.reuse.record(false);
        }
    }

    /// Ends after the bytes went straight to the reader. `copy` returns a copy of as many bytes as
    /// the waiters need; it is not called if there are none.
    pub(crate) fn delivered(self, copy: impl FnOnce(usize) -> Option<Decoded>) {
        // No reader can join once the entry has left the table, so none comes too late for the
        // copy.
        self.remove();
        let wanted = self.in_flight.wanted();
        let decoded = (wanted > 0).then(|| copy(wanted)).flatten();
        self.in_flight.complete(Ok(decoded.map(Arc::new)));
    }

    /// Ends with an error, which all waiters get as well.
    pub(crate) fn fail(self, error: Error) {
        self.end(Err(error));
    }

    /// Leaves the table before it completes: a waiter that needs more bytes than the outcome has
    /// claims the pcluster again, and would spin on this entry, possibly at a priority that never
    /// yields.
    fn end(&self, outcome: Outcome) {
        self.remove();
        self.in_flight.complete(outcome);
    }

    fn remove(&self) {
        let mut inner = self.table.lock();
        // A successor may be in flight under the same key by the time this one is dropped.
        if inner
            .in_flight
            .get(&self.key)
            .is_some_and(|in_flight| Arc::ptr_eq(in_flight, &self.in_flight))
        {
            inner.in_flight.remove(&self.key);
        }
    }
}

impl Drop for DecodeLease<'_> {
    fn drop(&mut self) {
        self.end(Ok(None));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use page_pool::{PagePool, PoolOptions};

    use super::*;

    const LENGTH: usize = 8192;

    /// Reads the ranges one after the other, as `place` does; returns the bytes cached then.
    fn after(ranges: &[Range<usize>]) -> u64 {
        let pool = PagePool::new(&PoolOptions::default()).unwrap();
        let table = PclusterTable::new(1 << 20);
        for range in ranges {
            match table.claim(Key::example(), range.clone()) {
                Claim::Leader(lease) => {
                    let buffer = pool.alloc(LENGTH).unwrap();
                    lease.cache(Arc::new(Decoded::new(buffer)));
                }
                Claim::Cached(_) if range.end == LENGTH => table.finished(Key::example()),
                Claim::Cached(_) => {}
                Claim::InFlight(_) => panic!("no other thread decodes"),
            }
        }
        let cached = table.usage().0;
        assert_eq!(pool.stats().in_use_pages * 4096, cached as usize);
        cached
    }

    #[test]
    fn a_stream_leaves_nothing_behind() {
        assert_eq!(after(&[0..4096, 4096..LENGTH]), 0);
        assert_eq!(after(&[0..4096, 4096..6000, 6000..LENGTH]), 0);
    }

    #[test]
    fn random_readers_find_it_again() {
        let cached = LENGTH as u64;
        assert_eq!(after(&[4096..6000, 6000..LENGTH]), cached);
        assert_eq!(after(&[0..4096, 6000..LENGTH]), cached);
        assert_eq!(after(&[0..4096, 0..4096, 4096..LENGTH]), cached);
    }

    #[test]
    fn the_oldest_is_dropped_for_memory_that_others_need() {
        let pool = PagePool::new(&PoolOptions::default()).unwrap();
        let table = PclusterTable::new(1 << 20);
        assert!(!table.displace_oldest());
        let Claim::Leader(lease) = table.claim(Key::example(), 0..1) else {
            panic!("there is no other reader");
        };
        lease.cache(Arc::new(Decoded::new(pool.alloc(1).unwrap())));
        assert!(table.displace_oldest());
        assert_eq!((table.usage().0, pool.stats().in_use_pages), (0, 0));
    }
}
