//! Pclusters in flight and pclusters kept: none is decoded twice while one reader decodes it.
//!
//! A reader asks the [`PclusterTable`] for a pcluster. It gets the decoded bytes when they are
//! kept, or waits for the reader who decodes them now, or becomes the one who does. A pcluster is
//! claimed by the thread that decodes it and at the moment it begins, never by a queued request:
//! a waiter therefore always waits for a thread that runs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use erofs_format::Pcluster;
use page_pool::PageBuf;

use crate::Error;
use crate::cache::Cache;

/// Decoded bytes of a pcluster, from its beginning; perhaps not all of them.
#[derive(Debug)]
pub(crate) struct Decoded {
    bytes: PageBuf,
    length: usize,
}

impl Decoded {
    pub(crate) fn new(bytes: PageBuf, length: usize) -> Self {
        Self { bytes, length }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
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
    kept: Cache<Key, Arc<Decoded>>,
}

impl PclusterTable {
    pub(crate) fn new(budget: u64) -> Self {
        let inner = Inner {
            flights: HashMap::new(),
            kept: Cache::new(budget),
        };
        Self {
            inner: Mutex::new(inner),
            budget,
        }
    }

    /// Finds the first `length` decoded bytes of a pcluster, or who is to make them.
    pub(crate) fn claim(&self, key: Key, length: usize) -> Claim<'_> {
        let mut inner = self.lock();
        if let Some(decoded) = inner.kept.get(&key)
            && decoded.length >= length
        {
            return Claim::Kept(decoded.clone());
        }
        match inner.flights.entry(key) {
            Entry::Occupied(flight) => Claim::InFlight(flight.get().clone()),
            Entry::Vacant(place) => {
                let flight = place.insert(Arc::default()).clone();
                Claim::Yours(Landing {
                    table: self,
                    key,
                    flight,
                })
            }
        }
    }

    /// A buffer of the pclusters that must go if `bytes` more are to be kept: used again, it
    /// spares the system an allocation and this process the page faults.
    pub(crate) fn recycle(&self, bytes: usize) -> Option<PageBuf> {
        let decoded = self.lock().kept.make_room(bytes as u64)?;
        let buffer = Arc::into_inner(decoded)?.bytes;
        (buffer.len() >= bytes).then_some(buffer)
    }

    /// Says that all bytes of a pcluster were given out: it is the first to go.
    pub(crate) fn finished(&self, key: Key) {
        self.lock().kept.demote(&key);
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
    /// Waits for the decoding to end. `Ok(None)` means: ask the table again.
    pub(crate) fn wait(&self, length: usize) -> Outcome {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.wanted = state.wanted.max(length);
        loop {
            match &state.outcome {
                Some(Ok(Some(decoded))) if decoded.length < length => return Ok(None),
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
    flight: Arc<Flight>,
}

impl Landing<'_> {
    /// Ends with bytes that are worth keeping.
    pub(crate) fn keep(self, decoded: Arc<Decoded>) {
        let weight = decoded.bytes.len() as u64;
        self.table
            .lock()
            .kept
            .put(self.key, decoded.clone(), weight);
        self.flight.land(Ok(Some(decoded)));
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
        self.flight.land(Err(error));
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
        self.remove();
        self.flight.land(Ok(None));
    }
}
