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
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use erofs_format::Pcluster;

use crate::Error;
use crate::cache::Cache;
use crate::decoded::Decoded;
use crate::in_flight::{InFlight, Outcome, Waiting};
use crate::read_cache::{Hit, ReadCache};
use crate::reuse::{Reuse, SharedReuse};
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

/// A cached pcluster. A: what changes; once it was read again and out of order, nothing does.
#[derive(Debug)]
struct CachedPcluster {
    decoded: Arc<Decoded>,
    /// It was read again.
    asked_again: AtomicBool,
    /// Where the last read of it ended.
    next: AtomicUsize,
    /// The first read began at its first byte, and each other one where the last one had ended.
    in_order: AtomicBool,
    /// It was read to its last byte.
    finished: AtomicBool,
}

impl CachedPcluster {
    fn new(decoded: Arc<Decoded>, first: &Range<usize>, asked_again: bool) -> Self {
        Self {
            decoded,
            asked_again: AtomicBool::new(asked_again),
            next: AtomicUsize::new(first.end),
            in_order: AtomicBool::new(first.start == 0),
            finished: AtomicBool::new(false),
        }
    }

    /// Notes another read.
    fn was_read(&self, wanted: &Range<usize>) {
        if !self.in_order.load(Relaxed) {
            return;
        }
        if self.next.load(Relaxed) == wanted.start {
            self.next.store(wanted.end, Relaxed);
        } else {
            self.in_order.store(false, Relaxed);
        }
    }
}

/// Decoded bytes of a cached pcluster, for the length of a request.
#[derive(Debug)]
pub(crate) struct CachedBytes(Hit<Key, CachedPcluster>);

impl CachedBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.decoded.bytes()
    }
}

/// Decoded bytes of a usual pcluster (128 KiB). The budget divided by it is the number of keys that
/// are remembered.
const USUAL_BYTES: u64 = 128 << 10;

/// Decoded bytes of a small pcluster: the table has a slot for each that fits the budget.
const SMALL_BYTES: u64 = 8 << 10;

/// Result of claiming a pcluster.
#[derive(Debug)]
pub(crate) enum Claim<'a> {
    /// Its bytes, at least as many as claimed.
    Cached(CachedBytes),
    /// Another thread is decoding it.
    InFlight(Arc<InFlight>),
    /// The caller decodes it, then ends the lease.
    Leader(DecodeLease<'a>),
}

/// The pclusters of an image.
#[derive(Debug)]
pub(crate) struct PclusterTable {
    /// Hits take no lock.
    cached: ReadCache<Key, CachedPcluster>,
    /// A. How often pclusters that were read in part were read again.
    reuse: SharedReuse,
    /// L: held for lookups only and never while decoding or waiting.
    inner: PiMutex<Inner>,
    /// I. Bytes that may be cached.
    budget: u64,
}

#[derive(Debug)]
struct Inner {
    /// One entry for each pcluster that a thread is decoding.
    in_flight: HashMap<Key, Arc<InFlight>>,
    /// Pclusters that were read in part and not cached.
    uncached: Cache<Key, ()>,
}

impl PclusterTable {
    pub(crate) fn new(budget: u64) -> Self {
        let inner = Inner {
            in_flight: HashMap::new(),
            uncached: Cache::new(budget / USUAL_BYTES),
        };
        Self {
            cached: ReadCache::new(budget, SMALL_BYTES),
            reuse: SharedReuse::default(),
            inner: PiMutex::new(inner),
            budget,
        }
    }

    /// Returns the cached prefix that covers `wanted`, or claims the pcluster for decoding.
    pub(crate) fn claim(&self, key: Key, wanted: Range<usize>) -> Claim<'_> {
        if let Some(cached) = self.find(&key, &wanted) {
            return Claim::Cached(cached);
        }
        let mut inner = self.lock();
        // A thread that has just decoded it cached it before it left the pclusters in flight.
        if let Some(cached) = self.find(&key, &wanted) {
            return Claim::Cached(cached);
        }
        if inner.uncached.take(&key).is_some() {
            self.reuse.record(true);
        }
        match inner.in_flight.entry(key) {
            Entry::Occupied(in_flight) => Claim::InFlight(in_flight.get().clone()),
            Entry::Vacant(place) => {
                let in_flight = place.insert(Arc::default()).clone();
                Claim::Leader(DecodeLease {
                    table: self,
                    key,
                    wanted,
                    in_flight,
                    reuse: self.reuse.now(),
                })
            }
        }
    }

    /// The cached prefix, if it covers `wanted`.
    fn find(&self, key: &Key, wanted: &Range<usize>) -> Option<CachedBytes> {
        let found = self.cached.get(key)?;
        if !found.asked_again.load(Relaxed) && !found.asked_again.swap(true, Relaxed) {
            self.reuse.record(true);
        }
        if found.decoded.bytes().len() < wanted.end {
            return None;
        }
        found.was_read(wanted);
        Some(CachedBytes(found))
    }

    /// Reports that a cached pcluster was read to its last byte. A stream that has read it from its
    /// first byte on does not come back, so that it is dropped; it leaves before others the first
    /// time that another reader comes to its end.
    pub(crate) fn finished(&self, key: Key, cached: CachedBytes) {
        let CachedBytes(found) = cached;
        if found.in_order.load(Relaxed) {
            drop(found);
            drop(self.cached.take(&key));
        } else if !found.finished.load(Relaxed) && !found.finished.swap(true, Relaxed) {
            found.unmark();
        }
    }

    /// Drops a pcluster that was not read lately; false if none is cached.
    pub(crate) fn displace_oldest(&self) -> bool {
        let gone = self.cached.pop();
        gone.iter().for_each(|cached| self.gone(cached));
        gone.is_some()
    }

    /// Accounts for a cached pcluster that was dropped.
    fn gone(&self, cached: &CachedPcluster) {
        if !cached.asked_again.load(Relaxed) {
            self.reuse.record(false);
        }
    }

    /// Bytes that may be cached.
    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes cached now, and bytes that may be cached.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.cached.weight(), self.budget)
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

    /// Ends with bytes for the waiters and for the cache. A stream whose next request waits for the
    /// rest of the bytes does not come back for them, so that they are not cached.
    pub(crate) fn cache(self, decoded: Arc<Decoded>) {
        let Waiting { readers, bytes } = self.in_flight.waiting();
        let asked_again = readers > 0;
        if asked_again {
            self.table.reuse.record(true);
        }
        if readers == 1 && self.wanted.start == 0 && bytes == decoded.bytes().len() {
            return self.publish(decoded);
        }
        let weight = decoded.memory() as u64;
        let cached = CachedPcluster::new(decoded.clone(), &self.wanted, asked_again);
        let gone = self.table.cached.put(self.key, cached, weight);
        gone.iter().for_each(|cached| self.table.gone(cached));
        // Memory is released outside of the lock.
        drop(gone);
        self.end(Ok(Some(decoded)));
    }

    /// Remembers that the pcluster was read in part and not cached.
    pub(crate) fn record_uncached(&self) {
        for () in self.table.lock().uncached.put(self.key, (), 1) {
            self.table.reuse.record(false);
        }
    }

    /// Ends after the bytes went straight to the reader. `copy` returns a copy of as many bytes as
    /// the waiters need; it is not called if there are none.
    pub(crate) fn delivered(self, copy: impl FnOnce(usize) -> Option<Decoded>) {
        // No reader can join once the entry has left the table, so none comes too late for the
        // copy.
        self.remove();
        let wanted = self.in_flight.waiting().bytes;
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

#[cfg(all(test, not(feature = "loom")))]
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
                Claim::Cached(cached) if range.end == LENGTH => {
                    table.finished(Key::example(), cached);
                }
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
    fn a_reader_that_joins_counts_as_another_read() {
        let pool = PagePool::new(&PoolOptions::default()).unwrap();
        let table = PclusterTable::new(1 << 20);
        // A reader of the first half decodes, and others join it for the bytes from one place to
        // another. Returns what is cached then, and whether caching pays.
        let read = |others: &[(usize, usize)]| {
            let Claim::Leader(lease) = table.claim(Key::example(), 0..LENGTH / 2) else {
                panic!("there is no other reader");
            };
            for &(from, to) in others {
                match table.claim(Key::example(), from..to) {
                    Claim::InFlight(in_flight) => in_flight.join(to),
                    other => panic!("{other:?}"),
                }
            }
            lease.cache(Arc::new(Decoded::new(pool.alloc(LENGTH).unwrap())));
            let cached = table.usage().0;
            while table.displace_oldest() {}
            (cached, table.reuse.now().pays_caching())
        };
        let repeated = |times: usize, others: &[(usize, usize)]| {
            for _ in 1..times {
                read(others);
            }
            read(others)
        };
        let (rest, part) = ((LENGTH / 2, LENGTH), (0, LENGTH / 4));
        let weight = LENGTH as u64;
        assert_eq!(repeated(100, &[]), (weight, false), "no reader came back");
        assert_eq!(repeated(10, &[rest]), (0, true), "a stream took the rest");
        assert_eq!(repeated(1, &[rest, rest]), (weight, true), "two programs");
        assert_eq!(repeated(100, &[]), (weight, false));
        assert_eq!(repeated(10, &[part]), (weight, true), "another program");
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
