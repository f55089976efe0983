//! Pclusters in flight and pclusters kept: none is decoded twice while one reader decodes it.
//!
//! A reader asks the [`PclusterTable`] for a pcluster. It gets the decoded bytes when they are
//! kept, or waits for the reader who decodes them now, or becomes the one who does. A pcluster is
//! claimed by the thread that decodes it and at the moment it begins, never by a queued request:
//! a waiter therefore always waits for a thread that runs.
//!
//! The table also learns from what happens to pclusters that were read in part ([`Reuse`]). Where
//! nothing of them is kept, their keys are, as many as there might be pclusters.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use erofs_format::Pcluster;
use page_pool::PageBuf;

use crate::Error;
use crate::cache::Cache;
use crate::reuse::Reuse;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Decoded bytes of a pcluster, from its beginning; perhaps not all of them.
#[derive(Debug)]
pub(crate) struct Decoded(PageBuf);

impl Decoded {
    pub(crate) fn new(bytes: PageBuf) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Bytes of memory that it holds.
    pub(crate) fn memory(&self) -> usize {
        self.0.capacity()
    }
}

/// What makes a pcluster the same one. The stored length and the coding belong to it: a crafted
/// image may describe one address in several ways, and each must see its own bytes.
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

/// A pcluster that is kept.
#[derive(Debug)]
struct Kept {
    decoded: Arc<Decoded>,
    /// Its first further reader came.
    asked_again: bool,
    /// Where its last reader stopped.
    next: usize,
    /// The first reader began at its first byte, and each one where the last one had stopped.
    in_order: bool,
}

/// Decoded bytes of a usual pcluster (128 KiB); the budget divided by it is the number of keys that
/// are remembered.
const USUAL_BYTES: u64 = 128 << 10;

/// What a reader who asks for a pcluster gets.
#[derive(Debug)]
pub(crate) enum Claim<'a> {
    /// Its bytes, at least as many as asked for.
    Kept(Arc<Decoded>),
    /// Somebody decodes it now.
    InFlight(Arc<Flight>),
    /// Nobody does: decode it, then land it.
    Yours(Landing<'a>),
}

/// L: table lock, held for look-ups only and never while anything is decoded or waited for.
#[derive(Debug)]
pub(crate) struct PclusterTable {
    inner: Mutex<Inner>,
    /// I. Bytes that may be kept.
    budget: u64,
}

#[derive(Debug)]
struct Inner {
    /// L. One entry for each pcluster that a thread decodes at this moment.
    flights: HashMap<Key, Arc<Flight>>,
    /// L. Decoded bytes by age.
    kept: Cache<Key, Kept>,
    /// L. Pclusters that were read in part and not kept, by age.
    passed: Cache<Key, ()>,
    /// L. What became of both.
    reuse: Reuse,
}

impl Inner {
    /// A pcluster that was kept has to go.
    fn gone(reuse: &mut Reuse, kept: &Kept) {
        if !kept.asked_again {
            reuse.record(false);
        }
    }
}

impl PclusterTable {
    pub(crate) fn new(budget: u64) -> Self {
        let inner = Inner {
            flights: HashMap::new(),
            kept: Cache::new(budget),
            passed: Cache::new(budget / USUAL_BYTES),
            reuse: Reuse::default(),
        };
        Self {
            inner: Mutex::new(inner),
            budget,
        }
    }

    /// Finds so many decoded bytes of a pcluster that `wanted` is among them, or who is to make them.
    pub(crate) fn claim(&self, key: Key, wanted: Range<usize>) -> Claim<'_> {
        let mut inner = self.lock();
        let Inner {
            flights,
            kept,
            passed,
            reuse,
        } = &mut *inner;
        if let Some(found) = kept.get_mut(&key) {
            if !std::mem::replace(&mut found.asked_again, true) {
                reuse.record(true);
            }
            if found.decoded.bytes().len() >= wanted.end {
                found.in_order &= found.next == wanted.start;
                found.next = wanted.end;
                return Claim::Kept(found.decoded.clone());
            }
        } else if passed.take(&key).is_some() {
            reuse.record(true);
        }
        match flights.entry(key) {
            Entry::Occupied(flight) => Claim::InFlight(flight.get().clone()),
            Entry::Vacant(place) => {
                let flight = place.insert(Arc::default()).clone();
                Claim::Yours(Landing {
                    table: self,
                    key,
                    wanted,
                    flight,
                    reuse: *reuse,
                })
            }
        }
    }

    /// Says that a pcluster that is kept was given out to its last byte. It is the first to go; at once
    /// where a stream has read it from its first byte on.
    pub(crate) fn finished(&self, key: Key) {
        let mut inner = self.lock();
        if inner.kept.get(&key).is_some_and(|kept| kept.in_order) {
            let gone = inner.kept.take(&key);
            drop(inner);
            drop(gone);
        } else {
            inner.kept.demote(&key);
        }
    }

    /// Takes out what has not been asked for longest; false when nothing is kept.
    pub(crate) fn displace_oldest(&self) -> bool {
        let mut inner = self.lock();
        let gone = inner.kept.pop();
        gone.iter()
            .for_each(|kept| Inner::gone(&mut inner.reuse, kept));
        drop(inner);
        gone.is_some()
    }

    /// Bytes that may be kept.
    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes kept now, and bytes that may be kept.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.lock().kept.weight(), self.budget)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pcluster that is being decoded.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// L: flight lock, taken inside of no other lock.
    state: Mutex<State>,
    landed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// L. Most decoded bytes that somebody waits for.
    wanted: usize,
    /// L. Set once.
    outcome: Option<Outcome>,
}

/// `Ok(None)`: decoded, but the bytes were not put aside (nobody had asked in time).
type Outcome = Result<Option<Arc<Decoded>>, Error>;

impl Flight {
    /// Says how many decoded bytes will be waited for.
    pub(crate) fn join(&self, length: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.wanted = state.wanted.max(length);
    }

    /// Waits for the decoding to end. `Ok(None)` means: ask the table again.
    pub(crate) fn wait(&self, length: usize) -> Outcome {
        self.join(length);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &state.outcome {
                Some(Ok(Some(decoded))) if decoded.bytes().len() < length => return Ok(None),
                Some(outcome) => return outcome.clone(),
                None => {
                    state = self
                        .landed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn land(&self, outcome: Outcome) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.outcome.get_or_insert(outcome);
        drop(state);
        self.landed.notify_all();
    }
}

/// The duty to end a flight. Dropped without an outcome (a panic), it sends the waiters back to
/// the table, where one of them takes over.
#[derive(Debug)]
pub(crate) struct Landing<'a> {
    table: &'a PclusterTable,
    key: Key,
    /// I. What the reader who decodes wants of it.
    wanted: Range<usize>,
    flight: Arc<Flight>,
    reuse: Reuse,
}

impl Landing<'_> {
    /// Whether it is likely that somebody will ask for this pcluster again.
    pub(crate) fn reuse(&self) -> Reuse {
        self.reuse
    }

    /// Ends with bytes for those who wait by now, kept by somebody else.
    pub(crate) fn hand_over(self, decoded: Arc<Decoded>) {
        self.end(Ok(Some(decoded)));
    }

    /// Ends with bytes that are worth keeping.
    pub(crate) fn keep(self, decoded: Arc<Decoded>) {
        let weight = decoded.memory() as u64;
        let kept = Kept {
            decoded: decoded.clone(),
            asked_again: false,
            next: self.wanted.end,
            in_order: self.wanted.start == 0,
        };
        let mut inner = self.table.lock();
        let gone = inner.kept.put(self.key, kept, weight);
        gone.iter()
            .for_each(|kept| Inner::gone(&mut inner.reuse, kept));
        // Memory goes back outside of the lock.
        drop(inner);
        drop(gone);
        self.end(Ok(Some(decoded)));
    }

    /// Remembers that the pcluster was read in part, and nothing of it kept.
    pub(crate) fn pass(&self) {
        let mut inner = self.table.lock();
        for () in inner.passed.put(self.key, (), 1) {
            inner.reuse.record(false);
        }
    }

    /// Ends after the bytes went straight to the reader; `copy` puts aside as many as it is told
    /// for those who wait by now, and is not called when nobody does.
    pub(crate) fn delivered(self, copy: impl FnOnce(usize) -> Option<Decoded>) {
        // Nobody can join a flight that has left the table, so none comes too late for the copy.
        self.remove();
        let wanted = self
            .flight
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wanted;
        let decoded = (wanted > 0).then(|| copy(wanted)).flatten();
        self.flight.land(Ok(decoded.map(Arc::new)));
    }

    /// Ends with an error, which all who wait get too.
    pub(crate) fn fail(self, error: Error) {
        self.end(Err(error));
    }

    /// Out of the table before it lands: who needs more than the outcome has asks the table again, and
    /// would find this flight there until it is gone, at a priority perhaps that never lets it go.
    fn end(&self, outcome: Outcome) {
        self.remove();
        self.flight.land(outcome);
    }

    fn remove(&self) {
        let mut inner = self.table.lock();
        // A successor may fly under the same key by the time this one is dropped.
        if inner
            .flights
            .get(&self.key)
            .is_some_and(|flight| Arc::ptr_eq(flight, &self.flight))
        {
            inner.flights.remove(&self.key);
        }
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.end(Ok(None));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use page_pool::{PagePool, PoolOptions, Wait};

    use super::*;

    const LENGTH: usize = 8192;

    /// Reads the ranges one after the other, as `supply` does it; the bytes that are kept then.
    fn after(ranges: &[Range<usize>]) -> u64 {
        let pool = PagePool::new(&PoolOptions::default()).unwrap();
        let table = PclusterTable::new(1 << 20);
        for range in ranges {
            match table.claim(Key::example(), range.clone()) {
                Claim::Yours(landing) => {
                    let buffer = pool.alloc(LENGTH, Wait::May).unwrap();
                    landing.keep(Arc::new(Decoded::new(buffer)));
                }
                Claim::Kept(_) if range.end == LENGTH => table.finished(Key::example()),
                Claim::Kept(_) => {}
                Claim::InFlight(_) => panic!("nobody decodes"),
            }
        }
        let kept = table.usage().0;
        assert_eq!(pool.stats().in_use_pages * 4096, kept as usize);
        kept
    }

    #[test]
    fn a_stream_leaves_nothing_behind() {
        assert_eq!(after(&[0..4096, 4096..LENGTH]), 0);
        assert_eq!(after(&[0..4096, 4096..6000, 6000..LENGTH]), 0);
    }

    #[test]
    fn readers_that_jump_about_find_it_again() {
        let kept = LENGTH as u64;
        assert_eq!(after(&[4096..6000, 6000..LENGTH]), kept);
        assert_eq!(after(&[0..4096, 6000..LENGTH]), kept);
        assert_eq!(after(&[0..4096, 0..4096, 4096..LENGTH]), kept);
    }

    #[test]
    fn the_oldest_goes_for_memory_that_others_need() {
        let pool = PagePool::new(&PoolOptions::default()).unwrap();
        let table = PclusterTable::new(1 << 20);
        assert!(!table.displace_oldest());
        let Claim::Yours(landing) = table.claim(Key::example(), 0..1) else {
            panic!("nobody else is there");
        };
        landing.keep(Arc::new(Decoded::new(pool.alloc(1, Wait::May).unwrap())));
        assert!(table.displace_oldest());
        assert_eq!((table.usage().0, pool.stats().in_use_pages), (0, 0));
    }
}
