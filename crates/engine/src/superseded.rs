//! Superseded entries: addresses and handles reused before their free has returned.
//!
//! The driver takes an address or handle back inside the call that frees it, so another thread can
//! be given it before that call has returned and its event is sent. The late free then belongs to
//! the former entry.

use std::collections::BTreeMap;

/// Entries beyond which the older half is dropped: the events of their frees were lost.
const MAX: usize = 65_536;

/// The free of a superseded entry was entered before its key was used again.
#[derive(Clone, Copy, Debug)]
struct Interval {
    reused_ns: u64,
    /// Frees that have not returned: a handle can have many references.
    frees: u32,
}

/// Superseded entries with frees that have not returned, by key and time of allocation.
#[derive(Debug, Default)]
pub(super) struct Superseded {
    entries: BTreeMap<(u64, u64), Interval>,
}

impl Superseded {
    /// Adds the entry allocated under `key` at `allocated_ns` and superseded at `reused_ns`, which
    /// takes `frees` frees.
    pub(super) fn remember(&mut self, key: u64, allocated_ns: u64, reused_ns: u64, frees: u32) {
        if frees == 0 {
            return;
        }
        if self.entries.len() >= MAX {
            let mut times: Vec<_> = self.entries.values().map(|one| one.reused_ns).collect();
            let (_, &mut middle_ns, _) = times.select_nth_unstable(MAX / 2);
            self.entries.retain(|_, one| one.reused_ns > middle_ns);
        }
        let interval = Interval { reused_ns, frees };
        self.entries.insert((key, allocated_ns), interval);
    }

    /// Number of entries kept.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether a free of `key` entered at `start_ns` belongs to a superseded entry, which is then
    /// removed.
    pub(super) fn forget(&mut self, key: u64, start_ns: u64) -> bool {
        let mut before = self.entries.range_mut((key, 0)..=(key, start_ns));
        let last = before.next_back();
        let Some((&place, found)) = last.filter(|(_, one)| start_ns < one.reused_ns) else {
            return false;
        };
        found.frees -= 1;
        if found.frees == 0 {
            self.entries.remove(&place);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_half_of_a_full_table_goes() {
        let mut superseded = Superseded::default();
        for n in 0..2_000_000 {
            superseded.remember(n, 1, 2 + n, 1);
            assert!(superseded.len() <= MAX);
        }
        assert!(!superseded.forget(7, 5) && !superseded.forget(1_900_000, 5));
        assert!(superseded.forget(1_999_999, 5) && !superseded.forget(1_999_999, 5));
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
    }
}
