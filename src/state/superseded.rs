//! What was handed out again before its free had returned.
//!
//! The driver takes an address or handle back inside the call that frees it, so another thread can
//! be given it before that call has returned and is seen. The late free then belongs to what was
//! there before.

use std::collections::HashMap;

/// Entries beyond which the oldest are forgotten: their frees were lost.
const MAX: usize = 65_536;
/// No free takes longer than this.
const KEEP_NS: u64 = 60_000_000_000;

/// The free of the former holder was entered within these times.
#[derive(Clone, Copy, Debug)]
struct Interval {
    allocated_ns: u64,
    reused_ns: u64,
}

/// Former holders whose frees have not returned yet.
#[derive(Debug, Default)]
pub(super) struct Superseded {
    by_key: HashMap<u64, Vec<Interval>>,
    count: usize,
}

impl Superseded {
    /// What was allocated under `key` at `allocated_ns` gave way to something newer.
    pub(super) fn remember(&mut self, key: u64, allocated_ns: u64, reused_ns: u64) {
        if self.count >= MAX {
            let oldest = reused_ns.saturating_sub(KEEP_NS);
            self.by_key.retain(|_, list| {
                list.retain(|s| s.reused_ns >= oldest);
                !list.is_empty()
            });
            self.count = self.by_key.values().map(Vec::len).sum();
            if self.count >= MAX {
                return;
            }
        }
        self.count += 1;
        self.by_key.entry(key).or_default().push(Interval {
            allocated_ns,
            reused_ns,
        });
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
        list.swap_remove(position);
        self.count -= 1;
        if list.is_empty() {
            self.by_key.remove(&key);
        }
        true
    }
}
