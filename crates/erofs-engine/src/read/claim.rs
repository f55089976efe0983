//! Pclusters in flight and cached pclusters: no pcluster is decoded twice at the same time.
//!
//! A reader claims a pcluster in the [`PclusterTable`]. It receives the decoded bytes if they are
//! cached, waits for the thread that is decoding them, or decodes them itself. Only the thread that
//! decodes a pcluster claims it, when decoding begins; a queued request never does. A waiter
//! therefore always waits for a running thread.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use erofs_format::Pcluster;
use page_pool::PageBuf;

use crate::cache::{Hit, ReadCache};
use crate::sync::{PiCondvar, PiMutex, lock, wait};

/// Decoded bytes of a pcluster from its beginning on, possibly not all of them.
pub(crate) type Decoded = Arc<PageBuf>;

/// A pcluster that is being decoded.
#[derive(Debug, Default)]
pub(crate) struct PclusterInFlight {
    /// Guarded by its own lock: a leaf lock, never taken while another lock is held.
    state: PiMutex<State>,
    completed: PiCondvar,
}

/// Guarded by `PclusterInFlight::state`.
#[derive(Debug, Default)]
struct State {
    /// Maximum number of decoded bytes needed by any reader that joined; 0 if none joined.
    wanted: usize,
    ended: bool,
    /// The decoded bytes; `None` after a failure, or if no reader joined in time for a copy.
    decoded: Option<Decoded>,
}

impl PclusterInFlight {
    /// Maximum number of decoded bytes needed by any reader that has joined so far; 0 if none has.
    pub(crate) fn wanted(&self) -> usize {
        lock(&self.state).wanted
    }

    /// Announces a reader that will [`wait`](Self::wait) for the first `length` decoded bytes.
    pub(crate) fn join(&self, length: usize) {
        let mut state = lock(&self.state);
        state.wanted = state.wanted.max(length);
    }

    /// Waits for the decoding to end. `None` means that the pcluster must be claimed again.
    pub(crate) fn wait(&self, length: usize) -> Option<Decoded> {
        let mut state = lock(&self.state);
        while !state.ended {
            state = wait(&self.completed, state);
        }
        let decoded = state.decoded.clone();
        decoded.filter(|decoded| decoded.len() >= length)
    }

    /// Ends the decoding and wakes all waiters. Further calls have no effect.
    pub(crate) fn complete(&self, decoded: Option<Decoded>) {
        let mut state = lock(&self.state);
        if !state.ended {
            (state.ended, state.decoded) = (true, decoded);
        }
        drop(state);
        self.completed.notify_all();
    }
}

/// Identity of a pcluster. It includes the stored length and the coding: a crafted image may
/// describe one address in several ways, and each description must produce its own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// The number of the image that contains the pcluster.
    image: usize,
    pcluster: Pcluster,
}

impl Key {
    pub(crate) fn of(image: usize, pcluster: &Pcluster) -> Self {
        // The same stream may be used by extents of different lengths.
        let pcluster = Pcluster {
            decoded_length: 0,
            partial: false,
            ..*pcluster
        };
        Self { image, pcluster }
    }
}

#[cfg(test)]
impl Key {
    /// An arbitrary pcluster, always the same one.
    pub(crate) fn example() -> Self {
        use erofs_format::{Algorithm, Coding, Location};
        let pcluster = Pcluster {
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
        };
        Self::of(0, &pcluster)
    }
}

/// Decoded size of a small pcluster: the table has a slot for each pcluster of this size that fits
/// into the capacity.
const SMALL_BYTES: u64 = 8 << 10;

/// Result of claiming a pcluster.
#[derive(Debug)]
pub(crate) enum Claim<'a> {
    /// The pcluster's decoded bytes, at least as many as claimed, to be held only for the duration
    /// of a request.
    Cached(Hit<Key, Decoded>),
    /// Another thread is decoding it.
    InFlight(Arc<PclusterInFlight>),
    /// The caller must decode it, then end the lease.
    Leader(DecodeLease<'a>),
}

/// The pclusters of all images that are cached or being decoded.
#[derive(Debug)]
pub(crate) struct PclusterTable {
    /// Cached pclusters. Hits take no lock.
    cached: ReadCache<Key, Decoded>,
    /// Guarded by its own lock: held only for lookups, never while decoding or waiting. One entry
    /// for each pcluster that a thread is decoding.
    in_flight: PiMutex<HashMap<Key, Arc<PclusterInFlight>>>,
}

impl PclusterTable {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            cached: ReadCache::new(capacity, SMALL_BYTES),
            in_flight: PiMutex::new(HashMap::new()),
        }
    }

    /// Returns the first `length` decoded bytes if they are cached, or claims the pcluster for
    /// decoding.
    pub(crate) fn claim(&self, key: Key, length: usize) -> Claim<'_> {
        if let Some(cached) = self.find(&key, length) {
            return Claim::Cached(cached);
        }
        let mut in_flight = lock(&self.in_flight);
        // Look again: a thread that decodes a pcluster adds it to the cache before removing it from
        // the pclusters in flight.
        if let Some(cached) = self.find(&key, length) {
            return Claim::Cached(cached);
        }
        match in_flight.entry(key) {
            Entry::Occupied(in_flight) => Claim::InFlight(in_flight.get().clone()),
            Entry::Vacant(place) => {
                let in_flight = place.insert(Arc::default()).clone();
                Claim::Leader(DecodeLease {
                    table: self,
                    key,
                    in_flight,
                })
            }
        }
    }

    fn find(&self, key: &Key, length: usize) -> Option<Hit<Key, Decoded>> {
        let found = self.cached.get(key);
        found.filter(|decoded| decoded.len() >= length)
    }

    /// Whether any part of a pcluster is cached.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.cached.get(key).is_some()
    }

    /// Drops a pcluster that was not read recently; false if nothing is cached.
    pub(crate) fn displace_oldest(&self) -> bool {
        self.cached.pop().is_some()
    }

    /// Number of bytes cached now.
    pub(crate) fn bytes(&self) -> u64 {
        self.cached.weight()
    }

    /// Maximum number of bytes cached.
    pub(crate) fn capacity(&self) -> u64 {
        self.cached.capacity
    }
}

/// The duty to decode a claimed pcluster. If the lease is dropped without bytes (after a failure,
/// which concerns only this reader, or a panic), the waiters return to the table, where one of them
/// takes over.
#[derive(Debug)]
pub(crate) struct DecodeLease<'a> {
    table: &'a PclusterTable,
    key: Key,
    in_flight: Arc<PclusterInFlight>,
}

impl DecodeLease<'_> {
    /// Ends the lease with bytes for the waiters. The caller keeps the bytes alive, not the cache.
    pub(crate) fn publish(self, decoded: Decoded) {
        self.end(Some(decoded));
    }

    /// Ends the lease with bytes for the waiters and for the cache.
    pub(crate) fn cache(self, decoded: Decoded) {
        let weight = decoded.capacity() as u64;
        self.table.cached.put(self.key, decoded.clone(), weight);
        self.end(Some(decoded));
    }

    /// Ends the lease after the bytes were decoded directly into the reader's buffer. `copy`
    /// returns a copy of as many bytes as the waiters need; it is not called without waiters.
    pub(crate) fn delivered(self, copy: impl FnOnce(usize) -> Option<PageBuf>) {
        // No reader can join after the entry has left the table, so none misses the copy.
        self.remove();
        let wanted = self.in_flight.wanted();
        let decoded = (wanted > 0).then(|| copy(wanted)).flatten();
        self.in_flight.complete(decoded.map(Arc::new));
    }

    /// Removes the entry from the table before completing it. Otherwise, a waiter that needs more
    /// bytes than were decoded would claim the pcluster again and spin on this entry, possibly at a
    /// priority that never yields.
    fn end(&self, decoded: Option<Decoded>) {
        self.remove();
        self.in_flight.complete(decoded);
    }

    fn remove(&self) {
        let mut in_flight = lock(&self.table.in_flight);
        // A completed lease gets here again when it is dropped, and then another reader's decoding
        // may be in flight under the same key.
        let own = in_flight.get(&self.key);
        if own.is_some_and(|own| Arc::ptr_eq(own, &self.in_flight)) {
            in_flight.remove(&self.key);
        }
    }
}

impl Drop for DecodeLease<'_> {
    fn drop(&mut self) {
        self.end(None);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use page_pool::{PagePool, PoolOptions};

    use super::*;

    /// A file that uses the intact beginning of a stream is readable, no matter how much of the
    /// stream other readers need.
    #[test]
    fn a_failure_is_that_of_the_reader_that_decoded() {
        let table = PclusterTable::new(0);
        let Claim::Leader(lease) = table.claim(Key::example(), 4096) else {
            panic!("there is no other reader");
        };
        let Claim::InFlight(in_flight) = table.claim(Key::example(), 10) else {
            panic!("it is being decoded");
        };
        in_flight.join(10);
        drop(lease);
        assert!(in_flight.wait(10).is_none(), "claim it again");
        assert!(matches!(table.claim(Key::example(), 10), Claim::Leader(_)));
    }

    #[test]
    fn the_oldest_is_dropped_for_memory_that_others_need() {
        let pool = PagePool::new(&PoolOptions::default()).unwrap();
        let table = PclusterTable::new(1 << 20);
        assert!(!table.displace_oldest());
        let Claim::Leader(lease) = table.claim(Key::example(), 1) else {
            panic!("there is no other reader");
        };
        lease.cache(Arc::new(pool.alloc(1).unwrap()));
        assert!(table.displace_oldest());
        assert_eq!((table.bytes(), pool.stats().in_use_pages), (0, 0));
    }
}
