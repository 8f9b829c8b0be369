//! A least-recently-used cache.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A map with a limit of entries and bytes, which evicts the least recently used.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    entries: HashMap<K, CacheEntry<V>>,
    max_entries: usize,
    bytes: u64,
    max_bytes: u64,
}

#[derive(Debug)]
struct CacheEntry<V> {
    value: V,
    bytes: u64,
    used: Instant,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// An empty cache with these limits.
    pub(crate) fn new(max_entries: usize, max_bytes: u64) -> Self {
        Self {
            entries: HashMap::new(),
            max_entries,
            bytes: 0,
            max_bytes,
        }
    }

    /// The value of `key`, marked as used.
    pub(crate) fn get(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        entry.used = Instant::now();
        Some(&mut entry.value)
    }

    /// Inserts a value of `bytes` bytes, even beyond the limits.
    pub(crate) fn insert(&mut self, key: K, bytes: u64, value: V) -> &mut V {
        self.remove(&key);
        self.bytes = self.bytes.saturating_add(bytes);
        let used = Instant::now();
        let entry = CacheEntry { value, bytes, used };
        &mut self.entries.entry(key).insert_entry(entry).into_mut().value
    }

    /// Removes and returns the value of `key`.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        Some(entry.value)
    }

    /// Whether an entry of `bytes` bytes fits.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let has_bytes = self.bytes.saturating_add(bytes) <= self.max_bytes;
        has_bytes && self.entries.len() < self.max_entries
    }

    /// Removes the least recently used entry if it is idle for `idle`, and an entry of `bytes` bytes does
    /// not fit but would in an empty cache.
    pub(crate) fn displaced(&mut self, bytes: u64, idle: Duration) -> Option<V> {
        let may_fit = bytes <= self.max_bytes || self.entries.len() >= self.max_entries;
        (may_fit && !self.has_room(bytes)).then_some(())?;
        let (key, oldest) = self.entries.iter().min_by_key(|(_, entry)| entry.used)?;
        let (key, is_idle) = (*key, oldest.used.elapsed() >= idle);
        is_idle.then(|| self.remove(&key))?
    }

    /// Evicts entries until one of `bytes` bytes fits.
    pub(crate) fn make_room(&mut self, bytes: u64) {
        while self.displaced(bytes, Duration::ZERO).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_evicted() {
        let mut cache = Cache::new(3, 100);
        for key in ["a", "b", "c"] {
            cache.insert(key, 30, key);
        }
        assert!(cache.get(&"a").is_some() && !cache.has_room(10));
        assert_eq!(cache.displaced(10, Duration::from_secs(60)), None);
        assert_eq!(cache.displaced(10, Duration::ZERO), Some("b"));
        assert_eq!(cache.displaced(40, Duration::ZERO), None, "there is room");
        cache.make_room(41);
        assert!(cache.get(&"c").is_none() && cache.get(&"a").is_some());
        // An entry above the limit evicts nothing.
        cache.make_room(101);
        assert!(cache.get(&"a").is_some() && !cache.has_room(101));
        cache.insert("a", 50, "again");
        assert!(cache.has_room(50) && !cache.has_room(51));
        assert_eq!(cache.remove(&"a"), Some("again"));
        assert!(cache.has_room(100));
    }

    #[test]
    fn an_entry_makes_room_even_for_one_above_the_limit_of_bytes() {
        let mut cache = Cache::new(1, 100);
        cache.insert("a", 10, 1);
        assert!(!cache.has_room(0));
        assert_eq!(cache.displaced(101, Duration::ZERO), Some(1));
        *cache.insert("b", 100, 2) += 1;
        assert_eq!(cache.displaced(0, Duration::from_secs(60)), None);
        assert_eq!(cache.get(&"b"), Some(&mut 3));
        assert_eq!((cache.remove(&"a"), cache.remove(&"b")), (None, Some(3)));
        assert!(cache.has_room(100) && !cache.has_room(101));
    }
}
