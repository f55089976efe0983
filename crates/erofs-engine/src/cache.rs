//! A cache with a budget: least recently used first out, each entry with a weight of its own.

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

    /// Makes `key` the first to go.
    pub(crate) fn demote(&mut self, key: &K) {
        self.entries.demote(key);
    }

    /// Keeps `value` where its weight fits the budget at all; older entries make room for it.
    pub(crate) fn put(&mut self, key: K, value: V, weight: u64) {
        if weight > self.budget {
            return;
        }
        if let Some((_, old)) = self
            .entries
            .push(key, (value, weight))
            .map(|(_, entry)| entry)
        {
            self.weight -= old;
        }
        self.weight += weight;
        while self.weight > self.budget {
            self.pop();
        }
    }

    /// Takes the first to go, if `weight` more would go over the budget.
    pub(crate) fn make_room(&mut self, weight: u64) -> Option<V> {
        (self.weight + weight > self.budget)
            .then(|| self.pop())
            .flatten()
    }

    fn pop(&mut self) -> Option<V> {
        let (_, (value, weight)) = self.entries.pop_lru()?;
        self.weight -= weight;
        Some(value)
    }

    /// Total weight of what is kept.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
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
        cache.put(3, 3, 10);
        assert_eq!(cache.get(&1), None);
        assert_eq!(cache.get(&0), Some(&0));
        assert_eq!(cache.weight(), 30);
    }

    #[test]
    fn what_was_demoted_goes_before_all_others() {
        let mut cache = Cache::new(30);
        for key in 0..3 {
            cache.put(key, key, 10);
        }
        cache.demote(&2);
        assert_eq!(cache.make_room(10), Some(2));
        assert_eq!(cache.make_room(10), None);
    }

    #[test]
    fn what_is_larger_than_the_budget_is_not_kept() {
        let mut cache = Cache::new(30);
        cache.put(0, 0, 31);
        assert_eq!(cache.get(&0), None);
        assert_eq!(cache.weight(), 0);
    }

    #[test]
    fn putting_a_key_again_replaces_its_weight() {
        let mut cache = Cache::new(30);
        cache.put(0, 1, 10);
        cache.put(0, 2, 25);
        assert_eq!(cache.weight(), 25);
        assert_eq!(cache.get(&0), Some(&2));
    }
}
