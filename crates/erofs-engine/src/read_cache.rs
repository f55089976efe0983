//! A cache whose hits take no lock and write nothing that other threads read.
//!
//! A table of fixed size, cut into sets of eight slots; the hash of a key names its set, as in a
//! CPU's cache. A hit loads one slot. What it holds on to meanwhile it notes in a place of its own
//! thread (arc-swap), not in a counter of the entry. Threads that change the table take turns.
//!
//! Old entries go by a second chance: a hit marks its entry, unless it is marked already, and the
//! hand that looks for room takes the first entry without a mark, and all marks on its way. So the
//! entries that every thread reads are never written.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::{ArcSwapOption, Guard};

use crate::sync::{PiMutex, lock};

/// Slots of a set.
const WAYS: usize = 8;
/// Most slots of a table, 16 bytes each.
const MOST_SLOTS: u64 = 1 << 16;

/// Values up to a total weight.
#[derive(Debug)]
pub(crate) struct ReadCache<K, V> {
    /// Sets one behind the other. Changed by the holder of `room` alone.
    slots: Box<[Slot<K, V>]>,
    /// I.
    budget: u64,
    /// L: leaf lock.
    room: PiMutex<Room>,
}

#[derive(Debug)]
struct Slot<K, V> {
    /// A. Part of the hash of the key, never 0 with an entry: most misses load no entry.
    tag: AtomicU32,
    entry: ArcSwapOption<Entry<K, V>>,
}

#[derive(Debug)]
struct Room {
    /// Weight of all entries.
    weight: u64,
    /// Slot where the search for room goes on.
    hand: usize,
}

/// A cached value; I but for the mark.
#[derive(Debug)]
pub(crate) struct Entry<K, V> {
    key: K,
    value: V,
    weight: u64,
    /// A. Read since the hand came by.
    marked: AtomicBool,
}

impl<K, V> Deref for Entry<K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

/// A hit: keeps the value alive. For the length of a request; a thread has room for eight at once
/// before they count in the entry.
#[derive(Debug)]
pub(crate) struct Hit<K, V>(Guard<Option<Arc<Entry<K, V>>>>);

impl<K, V> Hit<K, V> {
    /// `None` for another key.
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

    /// Lets the entry go before others, unless it is read again.
    pub(crate) fn unmark(&self) {
        if let Some(entry) = &*self.0 {
            entry.marked.store(false, Ordering::Relaxed);
        }
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

/// What left the cache. To be dropped when no lock is held.
pub(crate) type Evicted<K, V> = Vec<Arc<Entry<K, V>>>;

impl<K: Hash + Eq, V> ReadCache<K, V> {
    /// `usual` is the weight of a usual value: the table has a slot for each that fits the budget.
    pub(crate) fn new(budget: u64, usual: u64) -> Self {
        let slots = (budget / usual.max(1)).clamp(2 * WAYS as u64, MOST_SLOTS);
        let slot = |_| Slot {
            tag: AtomicU32::new(0),
            entry: ArcSwapOption::empty(),
        };
        Self {
            slots: (0..slots.next_power_of_two()).map(slot).collect(),
            budget,
            room: PiMutex::new(Room { weight: 0, hand: 0 }),
        }
    }

    /// The value of `key`.
    pub(crate) fn get(&self, key: &K) -> Option<Hit<K, V>> {
        let (set, tag) = self.place(key);
        let slots = set.iter();
        let mut slots = slots.filter(|slot| slot.tag.load(Ordering::Relaxed) == tag);
        slots.find_map(|slot| Hit::of(slot.entry.load(), key))
    }

    /// Caches `value` if its weight fits the budget at all. Returns what had to leave: an older
    /// value of the same key too.
    pub(crate) fn put(&self, key: K, value: V, weight: u64) -> Evicted<K, V> {
        let mut gone = Vec::new();
        if weight > self.budget {
            return gone;
        }
        let (set, tag) = self.place(&key);
        let entry = Arc::new(Entry {
            key,
            value,
            weight,
            marked: AtomicBool::new(false),
        });
        let mut room = lock(&self.room);
        let slot = slot_for(set, tag, &entry.key);
        gone.extend(slot.swap(&mut room, tag, Some(entry)));
        while room.weight > self.budget {
            gone.extend(self.turn_hand(&mut room, Some(slot)));
        }
        gone
    }

    /// Removes and returns the value of `key`.
    pub(crate) fn take(&self, key: &K) -> Option<Arc<Entry<K, V>>> {
        let (set, tag) = self.place(key);
        let mut room = lock(&self.room);
        let slot = set.iter().find(|slot| slot.holds(tag, key))?;
        slot.swap(&mut room, 0, None)
    }

    /// Removes and returns the value that is due to leave.
    pub(crate) fn pop(&self) -> Option<Arc<Entry<K, V>>> {
        let mut room = lock(&self.room);
        while room.weight > 0 {
            let gone = self.turn_hand(&mut room, None);
            if gone.is_some() {
                return gone;
            }
        }
        None
    }

    /// Total weight of all values.
    pub(crate) fn weight(&self) -> u64 {
        lock(&self.room).weight
    }

    /// The set of a key, and its tag.
    fn place(&self, key: &K) -> (&[Slot<K, V>], u32) {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        let first = hash as usize & (self.slots.len() - 1) & !(WAYS - 1);
        (&self.slots[first..first + WAYS], (hash >> 32) as u32 | 1)
    }

    /// Looks at one slot, unless it is `kept`: takes its entry's mark, or the entry.
    fn turn_hand(&self, room: &mut Room, kept: Option<&Slot<K, V>>) -> Option<Arc<Entry<K, V>>> {
        let slot = &self.slots[room.hand];
        room.hand = (room.hand + 1) % self.slots.len();
        let is_kept = kept.is_some_and(|kept| std::ptr::eq(kept, slot));
        match !is_kept && slot.spare() {
            true => slot.swap(room, 0, None),
            false => None,
        }
    }
}

/// Where a new entry goes: in the place of an old one of its key, to a free slot, or to one without
/// a mark; the others of the set lose theirs.
fn slot_for<'s, K: Eq, V>(set: &'s [Slot<K, V>], tag: u32, key: &K) -> &'s Slot<K, V> {
    let same = set.iter().find(|slot| slot.holds(tag, key));
    let free = || {
        set.iter()
            .find(|slot| slot.tag.load(Ordering::Relaxed) == 0)
    };
    same.or_else(free)
        .or_else(|| set.iter().find(|slot| slot.spare()))
        .unwrap_or(&set[tag as usize / 2 % WAYS])
}

impl<K, V> Slot<K, V> {
    fn holds(&self, tag: u32, key: &K) -> bool
    where
        K: Eq,
    {
        let same = |entry: &Arc<Entry<K, V>>| entry.key == *key;
        self.tag.load(Ordering::Relaxed) == tag && self.entry.load().as_ref().is_some_and(same)
    }

    /// Whether it has an entry without a mark. Takes the mark.
    fn spare(&self) -> bool {
        let entry = self.entry.load();
        let marked = |entry: &Arc<Entry<K, V>>| entry.marked.swap(false, Ordering::Relaxed);
        entry.as_ref().is_some_and(|entry| !marked(entry))
    }

    fn swap(
        &self,
        room: &mut Room,
        tag: u32,
        entry: Option<Arc<Entry<K, V>>>,
    ) -> Option<Arc<Entry<K, V>>> {
        room.weight += entry.as_ref().map_or(0, |entry| entry.weight);
        let gone = self.entry.swap(entry);
        self.tag.store(tag, Ordering::Relaxed);
        room.weight -= gone.as_ref().map_or(0, |entry| entry.weight);
        gone
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn keys(cache: &ReadCache<u64, u64>, all: u64) -> Vec<u64> {
        (0..all).filter(|key| cache.get(key).is_some()).collect()
    }

    #[test]
    fn what_was_put_is_found_until_it_is_taken() {
        let cache = ReadCache::new(30, 1);
        assert!(cache.put(1, 10, 10).is_empty());
        assert_eq!(cache.get(&1).map(|hit| *hit), Some(10));
        assert!(cache.get(&2).is_none());
        assert_eq!(cache.take(&1).map(|entry| **entry), Some(10));
        assert!(cache.get(&1).is_none() && cache.take(&1).is_none());
        assert_eq!(cache.weight(), 0);
    }

    #[test]
    fn another_value_of_a_key_replaces_the_first() {
        let cache = ReadCache::new(30, 1);
        cache.put(1, 10, 10);
        let gone = cache.put(1, 11, 20);
        assert_eq!((gone.len(), **gone[0]), (1, 10));
        assert_eq!(cache.get(&1).map(|hit| *hit), Some(11));
        assert_eq!(cache.weight(), 20);
    }

    #[test]
    fn the_weight_stays_within_the_budget_and_what_is_read_stays_longest() {
        let cache = ReadCache::new(30, 1);
        (0..3).for_each(|key| drop(cache.put(key, key, 10)));
        let read = cache.get(&0).map(|hit| *hit);
        let gone = cache.put(3, 3, 10);
        assert_eq!((read, gone.len(), cache.weight()), (Some(0), 1, 30));
        assert!(cache.get(&0).is_some(), "it was read");
        assert_eq!(keys(&cache, 4).len(), 3);
    }

    #[test]
    fn what_is_larger_than_the_budget_is_not_kept() {
        let cache = ReadCache::new(30, 1);
        assert!(cache.put(0, 0, 31).is_empty());
        assert!(cache.get(&0).is_none());
        let nothing = ReadCache::new(0, 1);
        nothing.put(0, 0, 1);
        assert!(nothing.get(&0).is_none());
    }

    #[test]
    fn a_set_takes_more_keys_than_it_has_slots() {
        // 16 slots for 1000 keys, which all fit the budget.
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

    #[test]
    fn an_unmarked_entry_leaves_before_one_that_was_read() {
        let cache = ReadCache::new(20, 1);
        (0..2).for_each(|key| drop(cache.put(key, key, 10)));
        let hits: Vec<_> = (0..2).filter_map(|key| cache.get(&key)).collect();
        hits[1].unmark();
        assert_eq!(cache.pop().map(|entry| **entry), Some(1));
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
