//! An LRU cache with a budget; each entry has a weight.

use std::hash::Hash;

use lru::LruCache;

/// Keeps values up to a total weight. Not synchronised: its owner holds a lock.
#[derive(Debug)]
pub(crate) struct Cache<K: Hash + Eq, V> {
    entries: LruCache<K, (V, u64)>,
    weight: u64,
    budget: u64,
}

impl<K: Hash + Eq, V> Cache<K, V> {
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            entries: LruCache::unbounded(),
            weight: 0,
            budget,
        }
    }

    /// The value of `key`, now the most recently used.
    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Caches `value` if its weight fits the budget at all. Older entries are evicted for it
    /// and returned. An older value of the same key is replaced and not among them.
    pub(crate) fn put(&mut self, key: K, value: V, weight: u64) -> Vec<V> {
        if weight > self.budget {
            return Vec::new();
        }
        if let Some((_, old)) = self.entries.put(key, (value, weight)) {
            self.weight -= old;
        }
        self.weight += weight;
        let mut gone = Vec::new();
        while self.weight > self.budget {
            gone.extend(self.pop());
        }
        gone
    }

    /// Removes and returns the least recently used one.
    pub(crate) fn pop(&mut self) -> Option<V> {
        let (_, (value, weight)) = self.entries.pop_lru()?;
        self.weight -= weight;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = Cache::new(30);
        for key in 0..3 {
            cache.put(key, key, 10);
        }
        assert_eq!(cache.get(&0), Some(&0));
        assert_eq!(cache.put(3, 3, 10), [1]);
        assert_eq!(cache.get(&1), None);
        assert_eq!(cache.get(&0), Some(&0));
        assert_eq!(cache.weight, 30);
    }

    #[test]
    fn what_is_larger_than_the_budget_is_not_kept() {
        let mut cache = Cache::new(30);
        cache.put(0, 0, 31);
        assert_eq!(cache.get(&0), None);
        assert_eq!(cache.weight, 0);
    }

    #[test]
    fn putting_a_key_again_replaces_its_weight() {
        let mut cache = Cache::new(30);
        cache.put(0, 1, 10);
        assert_eq!(cache.put(0, 2, 25), []);
        assert_eq!(cache.weight, 25);
        assert_eq!(cache.get(&0), Some(&2));
    }
}
