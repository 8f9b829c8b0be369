//! What was handed out again before its free had returned.
//!
//! The driver takes an address or handle back inside the call that frees it, so another thread can
//! be given it before that call has returned and is seen. The late free then belongs to what was
//! there before.

use hashbrown::HashMap;

/// Entries beyond which the oldest are forgotten: their frees were lost.
const MAX: usize = 65_536;
/// The same of one key, where most are not followed by a free at all.
const MAX_OF_KEY: usize = 64;
/// No free takes longer than this.
const KEEP_NS: u64 = 60_000_000_000;

/// The free of the former holder was entered within these times.
#[derive(Clone, Copy, Debug)]
struct Interval {
    allocated_ns: u64,
    reused_ns: u64,
    /// Frees that have not returned: a handle can have many references.
    frees: u32,
}

/// Former holders whose frees have not returned yet.
#[derive(Debug, Default)]
pub(super) struct Superseded {
    by_key: HashMap<u64, Vec<Interval>>,
    count: usize,
    /// When there was last a search for what can be forgotten.
    searched_ns: u64,
    /// No more are remembered.
    pub(super) is_full: bool,
}

/// Between two searches, which look at everything.
const SEARCH_EVERY_NS: u64 = 1_000_000_000;

impl Superseded {
    /// What was allocated under `key` at `allocated_ns`, and takes so many frees, gave way to
    /// something newer.
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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Forgets the oldest of the former holders of `key`, if there are many.
    pub(super) fn thin_out(&mut self, key: u64) {
        let Some(list) = self.by_key.get_mut(&key) else {
            return;
        };
        if list.len() < MAX_OF_KEY {
            return;
        }
        let oldest = (0..list.len()).min_by_key(|&n| list[n].reused_ns);
        if let Some(oldest) = oldest {
            list.swap_remove(oldest);
            self.count -= 1;
        }
    }

    /// Whether a free of `key` that was entered at `start_ns` is that of a former holder, which is
    /// forgotten.
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
    fn what_is_full_of_what_is_new_costs_little() {
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
}
