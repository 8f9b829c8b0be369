//! Superseded entries: addresses and handles reused before their free has returned.
//!
//! The driver takes an address or handle back inside the call that frees it, so another thread can
//! be given it before that call has returned and its event is sent. The late free then belongs to
//! the former entry.

use hashbrown::HashMap;

/// Entries beyond which the oldest are dropped: the events of their frees were lost.
const MAX: usize = 65_536;
/// Limit per key, as most entries of one key are never followed by a free.
const MAX_OF_KEY: usize = 64;
/// Upper limit of the duration of a free, nanoseconds.
const KEEP_NS: u64 = 60_000_000_000;

/// The free of a superseded entry was entered between these times.
#[derive(Clone, Copy, Debug)]
struct Interval {
    allocated_ns: u64,
    reused_ns: u64,
    /// Frees that have not returned: a handle can have many references.
    frees: u32,
}

/// Superseded entries with frees that have not returned.
#[derive(Debug, Default)]
pub(super) struct Superseded {
    by_key: HashMap<u64, Vec<Interval>>,
    count: usize,
    /// When the entries were last scanned for old ones.
    searched_ns: u64,
    /// Whether further entries are dropped.
    pub(super) is_full: bool,
}

/// Minimum time between two scans of all entries, nanoseconds.
const SEARCH_EVERY_NS: u64 = 1_000_000_000;

impl Superseded {
    /// Adds the entry allocated under `key` at `allocated_ns` and superseded at `reused_ns`, which
    /// takes `frees` frees.
    pub(super) fn remember(&mut self, key: u64, allocated_ns: u64, reused_ns: u64, frees: u32) {
        if frees == 0 {
            return;
        }
        if self.count >= MAX && reused_ns >= self.searched_ns.saturating_add(SEARCH_EVERY_NS) {
            self.searched_ns = reused_ns;
            let oldest = reused_ns.saturating_sub(KEEP_NS);
            self.by_key.retain(|_, list| {
                list.retain(|s| s.reused_ns >= oldest);
                !list.is_empty()
            });
            self.count = self.by_key.values().map(Vec::len).sum();
        }
        if self.count >= MAX || self.is_full {
            return;
        }
        self.count += 1;
        self.by_key.entry(key).or_default().push(Interval {
            allocated_ns,
            reused_ns,
            frees,
        });
    }

    /// Number of entries kept.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Drops the oldest entries of `key`, if there are many.
    pub(super) fn drop_oldest(&mut self, key: u64) {
        if let Some(list) = self.by_key.get_mut(&key)
            && list.len() >= MAX_OF_KEY
            && let Some(oldest) = (0..list.len()).min_by_key(|&n| list[n].reused_ns)
        {
            list.swap_remove(oldest);
            self.count -= 1;
        }
    }

    /// Whether a free of `key` entered at `start_ns` belongs to a superseded entry, which is then
    /// removed.
    pub(super) fn forget(&mut self, key: u64, start_ns: u64) -> bool {
        let Some(list) = self.by_key.get_mut(&key) else {
            return false;
        };
        let belongs = |s: &Interval| s.allocated_ns <= start_ns && start_ns < s.reused_ns;
        let Some(position) = list.iter().position(belongs) else {
            return false;
        };
        list[position].frees -= 1;
        if list[position].frees > 0 {
            return true;
        }
        list.swap_remove(position);
        self.count -= 1;
        if list.is_empty() {
            self.by_key.remove(&key);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_of_new_entries_is_fast() {
        let mut superseded = Superseded::default();
        for n in 0..2_000_000 {
            superseded.remember(n, 1, 2 + n, 1);
        }
        assert_eq!(superseded.count, MAX);
        assert!(superseded.forget(7, 5));
        assert!(!superseded.forget(7, 5));
        superseded.remember(8, 1, KEEP_NS, 1);
        superseded.remember(9, 1, KEEP_NS * 2, 1);
        assert_eq!(superseded.count, 2);
    }

    #[test]
    fn a_free_belongs_to_the_entry_that_was_live_when_it_was_entered() {
        let mut superseded = Superseded::default();
        superseded.remember(7, 10, 20, 1);
        superseded.remember(7, 20, 30, 2);
        superseded.remember(8, 10, 20, 0);
        assert_eq!(superseded.len(), 2);
        assert!(!superseded.forget(7, 9) && !superseded.forget(7, 30));
        assert!(!superseded.forget(8, 10));
        assert!(superseded.forget(7, 10) && !superseded.forget(7, 19));
        assert_eq!(superseded.len(), 1);
        assert!(superseded.forget(7, 20) && superseded.forget(7, 29));
        assert!(!superseded.forget(7, 25));
        assert_eq!(superseded.len(), 0);
        superseded.is_full = true;
        superseded.remember(7, 10, 20, 1);
        assert_eq!(superseded.len(), 0);
    }

    #[test]
    fn entries_of_a_key_are_bounded_and_the_oldest_go_first() {
        let mut superseded = Superseded::default();
        superseded.drop_oldest(7);
        for n in (0..MAX_OF_KEY as u64 - 1).rev() {
            superseded.remember(7, 10 * n, 10 * n + 10, 1);
        }
        superseded.drop_oldest(7);
        assert_eq!(superseded.len(), MAX_OF_KEY - 1);
        superseded.remember(7, 1000, 1010, 1);
        superseded.drop_oldest(7);
        assert_eq!(superseded.len(), MAX_OF_KEY - 1);
        assert!(!superseded.forget(7, 5) && superseded.forget(7, 15));
    }

    #[test]
    fn old_entries_are_searched_for_once_a_second() {
        let mut superseded = Superseded::default();
        let start = 10 * KEEP_NS;
        for n in 0..MAX as u64 {
            superseded.remember(n, 1, start + n % 2, 1);
        }
        // A minute after half of them.
        superseded.remember(MAX as u64, 1, start + KEEP_NS, 1);
        assert_eq!(superseded.len(), MAX);
        superseded.remember(MAX as u64, 1, start + KEEP_NS + SEARCH_EVERY_NS - 1, 1);
        assert_eq!(superseded.len(), MAX);
        superseded.remember(MAX as u64, 1, start + KEEP_NS + SEARCH_EVERY_NS, 1);
        assert_eq!(superseded.len(), 1);
    }
}
