//! A cache whose hits take no lock and write nothing that other threads read.
//!
//! The cache is a table of fixed size, divided into sets of eight slots; the hash of a key selects
//! its set, as in a CPU's cache. A hit loads one slot. While a hit keeps its entry alive, arc-swap
//! records that in the thread's own memory, not in a counter in the entry. Threads that change the
//! table take turns.
//!
//! Old entries are evicted by a second-chance scheme: a hit marks its entry, unless it is already
//! marked. The search for room evicts the first unmarked entry of the queue or, after it has passed
//! `MOST_PASSED` entries, the next one even if it is marked. Marked entries that the search passes
//! lose their marks and move to the end. Therefore entries that every thread reads are rarely
//! written, and a change to the table delays other threads by only a few microseconds.

pub(crate) mod inodes;
pub(crate) mod metadata;
pub(crate) mod windows;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::{ArcSwapOption, Guard};

use crate::sync::{PiMutex, lock};

/// Number of slots in a set.
const WAYS: usize = 8;
/// Maximum number of slots in a table, 16 bytes each.
const MOST_SLOTS: u64 = 1 << 16;

/// Maximum number of marked entries passed over before one of them is evicted. If all entries of a
/// large table were marked, a search for an unmarked one would take milliseconds.
const MOST_PASSED: usize = 64;
/// Number of entries evicted before other threads get their turn. One large value may replace
/// thousands of small ones, for which the others would wait too long.
const MOST_IN_A_ROW: usize = 32;

/// A cache of values up to a total weight.
#[derive(Debug)]
pub(crate) struct ReadCache<K, V> {
    /// Sets, one after another. Changed only by the holder of `room`.
    slots: Box<[Slot<K, V>]>,
    /// Never changes.
    pub(crate) capacity: u64,
    /// Guarded by its own lock, a leaf lock.
    room: PiMutex<Room>,
}

#[derive(Debug)]
struct Slot<K, V> {
    /// Atomic. Part of the hash of the entry's key, or 0 if the slot is free, so that most misses
    /// load no entry.
    tag: AtomicU32,
    entry: ArcSwapOption<Entry<K, V>>,
}

#[derive(Debug)]
struct Room {
    /// Weight of all entries.
    weight: u64,
    /// Slots with an entry, in the order in which they are considered for eviction.
    queue: VecDeque<u32>,
}

/// A cached value. Only the mark changes after the entry was created.
#[derive(Debug)]
pub(crate) struct Entry<K, V> {
    key: K,
    value: V,
    weight: u64,
    /// Atomic. Set if the entry has been read since the search for room last passed it.
    marked: AtomicBool,
}

/// A hit, which keeps its value alive. Hold it only for the duration of a request: a thread with
/// more than eight hits at a time has to count references in the entries.
#[derive(Debug)]
pub(crate) struct Hit<K, V>(Guard<Option<Arc<Entry<K, V>>>>);

impl<K, V> Hit<K, V> {
    /// The hit, or `None` if the entry has another key.
    fn of(entry: Guard<Option<Arc<Entry<K, V>>>>, key: &K) -> Option<Self>
    where
        K: Eq,
    {
        let found = entry.as_ref().filter(|entry| entry.key == *key)?;
        if !found.marked.load(Ordering::Relaxed) {
            found.marked.store(true, Ordering::Relaxed);
        }
        Some(Hit(entry))
    }
}

impl<K, V> Deref for Hit<K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        match &*self.0 {
            Some(entry) => &entry.value,
            None => unreachable!("a hit has an entry"),
        }
    }
}

/// Evicted entries. Drop them only while this thread holds no lock.
pub(crate) type Evicted<K, V> = Vec<Arc<Entry<K, V>>>;

impl<K: Hash + Eq, V> ReadCache<K, V> {
    /// Creates a cache whose table has a slot for each value of weight `usual` that fits into
    /// `capacity`.
    pub(crate) fn new(capacity: u64, usual: u64) -> Self {
        let slots = (capacity / usual.max(1)).clamp(2 * WAYS as u64, MOST_SLOTS);
        let slot = |_| Slot {
            tag: AtomicU32::new(0),
            entry: ArcSwapOption::empty(),
        };
        let slots: Box<_> = (0..slots.next_power_of_two()).map(slot).collect();
        let room = Room {
            weight: 0,
            queue: VecDeque::with_capacity(slots.len()),
        };
        Self {
            slots,
            capacity,
            room: PiMutex::new(room),
        }
    }

    /// Returns the value of `key`, if cached.
    pub(crate) fn get(&self, key: &K) -> Option<Hit<K, V>> {
        let (set, tag) = self.set_of(key);
        let slots = self.slots[set].iter();
        let mut slots = slots.filter(|slot| slot.tag.load(Ordering::Relaxed) == tag);
        slots.find_map(|slot| Hit::of(slot.entry.load(), key))
    }

    /// Caches `value`, unless its weight exceeds the capacity. Returns evicted entries, including
    /// an older value of the same key.
    pub(crate) fn put(&self, key: K, value: V, weight: u64) -> Evicted<K, V> {
        let mut gone = Vec::new();
        if weight > self.capacity {
            return gone;
        }
        let (set, tag) = self.set_of(&key);
        let entry = Arc::new(Entry {
            key,
            value,
            weight,
            marked: AtomicBool::new(false),
        });
        let mut room = lock(&self.room);
        let slot = set.start + slot_for(&self.slots[set], tag, &entry.key);
        gone.extend(self.swap(&mut room, slot, tag, Some(entry)));
        while room.weight > self.capacity {
            for _ in 0..MOST_IN_A_ROW {
                if room.weight > self.capacity {
                    gone.extend(self.evict(&mut room, Some(slot)));
                }
            }
            drop(room);
            room = lock(&self.room);
        }
        gone
    }

    /// Removes and returns the value that is due for eviction.
    pub(crate) fn pop(&self) -> Option<Arc<Entry<K, V>>> {
        self.evict(&mut lock(&self.room), None)
    }

    /// Total weight of all values.
    pub(crate) fn weight(&self) -> u64 {
        lock(&self.room).weight
    }

    /// The slots of a key's set, and its tag.
    fn set_of(&self, key: &K) -> (Range<usize>, u32) {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        let first = hash as usize & (self.slots.len() - 1) & !(WAYS - 1);
        (first..first + WAYS, (hash >> 32) as u32 | 1)
    }

    /// Removes and returns the next unmarked entry or, after [`MOST_PASSED`] entries, the next one
    /// even if it is marked; never the entry of the slot `kept`.
    fn evict(&self, room: &mut Room, kept: Option<usize>) -> Option<Arc<Entry<K, V>>> {
        for passed in 0..=MOST_PASSED {
            let number = room.queue.pop_front()?;
            let slot = number as usize;
            if kept != Some(slot) && (self.slots[slot].spare() || passed == MOST_PASSED) {
                return self.swap(room, slot, 0, None);
            }
            room.queue.push_back(number);
        }
        None
    }

    /// Replaces the entry of a slot. Slots that have an entry are in the queue.
    fn swap(
        &self,
        room: &mut Room,
        number: usize,
        tag: u32,
        entry: Option<Arc<Entry<K, V>>>,
    ) -> Option<Arc<Entry<K, V>>> {
        let (slot, is_full) = (&self.slots[number], entry.is_some());
        room.weight += entry.as_ref().map_or(0, |entry| entry.weight);
        let gone = slot.entry.swap(entry);
        slot.tag.store(tag, Ordering::Relaxed);
        room.weight -= gone.as_ref().map_or(0, |entry| entry.weight);
        if is_full && gone.is_none() {
            room.queue.push_back(number as u32);
        }
        gone
    }
}

/// Selects a slot for a new entry: one with an old entry for the same key, a free one, or one whose
/// entry is unmarked. Other entries of the set lose their marks.
fn slot_for<K: Eq, V>(set: &[Slot<K, V>], tag: u32, key: &K) -> usize {
    let has_tag = |slot: &Slot<K, V>, tag| slot.tag.load(Ordering::Relaxed) == tag;
    let has_key = |entry: &Arc<Entry<K, V>>| entry.key == *key;
    let holds =
        |slot: &Slot<K, V>| has_tag(slot, tag) && slot.entry.load().as_ref().is_some_and(has_key);
    let slots = || set.iter();
    let same = slots().position(holds);
    same.or_else(|| slots().position(|slot| has_tag(slot, 0)))
        .or_else(|| slots().position(Slot::spare))
        .unwrap_or(tag as usize / 2 % WAYS)
}

impl<K, V> Slot<K, V> {
    /// Clears the mark of the slot's entry. Returns whether there is an entry and it had no mark.
    fn spare(&self) -> bool {
        let entry = self.entry.load();
        let marked = |entry: &Arc<Entry<K, V>>| entry.marked.swap(false, Ordering::Relaxed);
        entry.as_ref().is_some_and(|entry| !marked(entry))
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn keys(cache: &ReadCache<u64, u64>, all: u64) -> Vec<u64> {
        (0..all).filter(|key| cache.get(key).is_some()).collect()
    }

    #[test]
    fn what_was_put_is_found_until_it_leaves() {
        let cache = ReadCache::new(30, 1);
        assert!(cache.put(1, 10, 10).is_empty());
        assert_eq!(cache.get(&1).map(|hit| *hit), Some(10));
        assert!(cache.get(&2).is_none());
        assert_eq!(cache.pop().map(|entry| entry.value), Some(10));
        assert!(cache.get(&1).is_none() && cache.pop().is_none());
        assert_eq!(cache.weight(), 0);
    }

    #[test]
    fn another_value_of_a_key_replaces_the_first() {
        let cache = ReadCache::new(30, 1);
        cache.put(1, 10, 10);
        let gone = cache.put(1, 11, 20);
        assert_eq!((gone.len(), gone[0].value), (1, 10));
        assert_eq!(cache.get(&1).map(|hit| *hit), Some(11));
        assert_eq!(cache.weight(), 20);
    }

    #[test]
    fn the_weight_stays_within_the_capacity_and_what_is_read_stays_longest() {
        let cache = ReadCache::new(30, 1);
        (0..3).for_each(|key| drop(cache.put(key, key, 10)));
        let read = cache.get(&0).map(|hit| *hit);
        let gone = cache.put(3, 3, 10);
        assert_eq!((read, gone.len(), cache.weight()), (Some(0), 1, 30));
        assert!(cache.get(&0).is_some(), "it was read");
        assert_eq!(keys(&cache, 4).len(), 3);
    }

    #[test]
    fn what_is_larger_than_the_capacity_is_not_kept() {
        let cache = ReadCache::new(30, 1);
        assert!(cache.put(0, 0, 31).is_empty());
        assert!(cache.get(&0).is_none());
        let nothing = ReadCache::new(0, 1);
        nothing.put(0, 0, 1);
        assert!(nothing.get(&0).is_none());
    }

    #[test]
    fn a_set_takes_more_keys_than_it_has_slots() {
        // 16 slots for 1000 keys, all of which fit into the capacity.
        let cache = ReadCache::new(1 << 20, 1 << 20);
        let gone: usize = (0..1000).map(|key| cache.put(key, key, 1).len()).sum();
        assert_eq!(keys(&cache, 1000).len() + gone, 1000);
        assert_eq!(cache.weight(), 16);
        let mut left = 0;
        while cache.pop().is_some() {
            left += 1;
        }
        assert_eq!((left, cache.weight()), (16, 0));
    }

    #[test]
    fn a_hit_outlives_the_entry() {
        let cache = ReadCache::new(1, 1);
        cache.put(1, String::from("one"), 1);
        let hit = cache.get(&1).unwrap();
        drop(cache.put(2, String::from("two"), 1));
        assert!(cache.get(&1).is_none());
        assert_eq!(*hit, "one");
    }

    /// The search must be short, because threads that need the table wait for its end.
    #[test]
    fn room_is_found_among_entries_that_are_all_read_without_a_look_at_all() {
        let cache = ReadCache::new(10_000, 1);
        (0..10_000).for_each(|key| drop(cache.put(key, key, 1)));
        let read = keys(&cache, 10_000).len();
        let gone = cache.put(10_000, 0, 10_004 - cache.weight());
        let entries = cache.slots.iter().filter_map(|slot| slot.entry.load_full());
        let marked = entries.filter(|entry| entry.marked.load(Ordering::Relaxed));
        let (unmarked, looks) = (read - gone.len() - marked.count(), 4 * MOST_PASSED + WAYS);
        assert!(unmarked <= looks, "{unmarked}");
        assert!(cache.get(&10_000).is_some() && cache.weight() <= 10_000);
    }

    #[test]
    fn one_large_value_takes_the_place_of_many() {
        let cache = ReadCache::new(1000, 1);
        (0..2000).for_each(|key| drop(cache.put(key, key, 1)));
        keys(&cache, 2000);
        let gone = cache.put(2000, 0, 900);
        assert!(gone.len() > 600, "{}", gone.len());
        assert!(cache.weight() <= 1000 && cache.get(&2000).is_some());
        let kept = keys(&cache, 2000).len() as u64;
        assert_eq!(cache.weight(), 900 + kept);
    }

    #[test]
    fn readers_and_writers_at_once_see_only_whole_values() {
        let cache = ReadCache::new(64, 1);
        std::thread::scope(|scope| {
            for seed in 0..4_u64 {
                let cache = &cache;
                scope.spawn(move || {
                    for turn in 0..20_000_u64 {
                        let key = (turn * 7 + seed * 13) % 200;
                        match cache.get(&key) {
                            Some(hit) => assert_eq!(*hit, vec![key; 3]),
                            None => drop(cache.put(key, vec![key; 3], 1 + key % 3)),
                        }
                    }
                });
            }
        });
        assert!(cache.weight() <= 64);
    }
}
