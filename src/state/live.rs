//! The live allocations of one process: dense, so that a million of them take little memory and
//! are quick to walk, with an index by address beside it.

use std::collections::HashMap;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// A live allocation. 32 bytes; millions of them are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Device address.
    pub address: u64,
    /// Bytes that were asked for.
    pub size_bytes: u64,
    /// When the allocating call returned, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Index of the allocating thread within its process.
    pub(super) thread: u32,
    /// Row of the allocating function.
    pub row: u16,
    device: u16,
}

const NO_DEVICE: u16 = u16::MAX;

impl Allocation {
    pub(super) fn new(
        address: u64,
        size_bytes: u64,
        end_ns: u64,
        thread: u32,
        row: u16,
        device: Option<u16>,
    ) -> Self {
        Self {
            address,
            size_bytes,
            end_ns,
            thread,
            row,
            device: device.unwrap_or(NO_DEVICE),
        }
    }

    /// Device index, if known.
    pub fn device(&self) -> Option<u16> {
        (self.device != NO_DEVICE).then_some(self.device)
    }
}

/// An allocation whose address was handed out again before its free had returned. The free, when
/// it does return, was entered within these times.
#[derive(Clone, Copy, Debug)]
struct Superseded {
    allocated_ns: u64,
    reused_ns: u64,
}

/// Superseded allocations beyond which the oldest are forgotten: their frees were lost.
const MAX_SUPERSEDED: usize = 65_536;
/// No free takes longer than this.
const SUPERSEDED_FOR_NS: u64 = 60_000_000_000;

/// What a successful free took away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    /// This allocation, live until now.
    Live(Allocation),
    /// One that had already given way to a newer one at the same address.
    Superseded,
    /// Nothing that is known.
    Unknown,
}

/// The live allocations of one process, by address.
#[derive(Debug, Default)]
pub(super) struct LiveSet {
    entries: Vec<Allocation>,
    /// Slots of `entries`, by the hash of the address.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    superseded: HashMap<u64, Vec<Superseded>>,
    superseded_count: usize,
}

impl LiveSet {
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Allocation> {
        self.entries.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Enters an allocation; returns the one that held its address, if any.
    pub(super) fn insert(&mut self, new: Allocation) -> Option<Allocation> {
        let hash = self.hasher.hash_one(new.address);
        let entries = &self.entries;
        let found = self
            .index
            .find(hash, |&slot| entries[slot as usize].address == new.address);
        if let Some(&slot) = found {
            let old = std::mem::replace(&mut self.entries[slot as usize], new);
            self.remember_superseded(&old, new.end_ns);
            return Some(old);
        }
        let Ok(slot) = u32::try_from(self.entries.len()) else {
            return None; // four billion live allocations: 128 GiB of ledger
        };
        self.entries.push(new);
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.index.insert_unique(hash, slot, |&slot| {
            hasher.hash_one(entries[slot as usize].address)
        });
        None
    }

    /// Takes away what lived at `address` when a free of it was entered at `start_ns`.
    pub(super) fn free(&mut self, address: u64, start_ns: u64) -> Freed {
        let hash = self.hasher.hash_one(address);
        let entries = &self.entries;
        let found = self.index.find_entry(hash, |&slot| {
            let entry = &entries[slot as usize];
            // A newer allocation than the one that the free was for stays.
            entry.address == address && entry.end_ns <= start_ns
        });
        if let Ok(occupied) = found {
            let (slot, _) = occupied.remove();
            return Freed::Live(self.take(slot));
        }
        if self.forget_superseded(address, start_ns) {
            Freed::Superseded
        } else {
            Freed::Unknown
        }
    }

    /// Removes the entry in `slot`, already gone from the index, and closes the gap.
    fn take(&mut self, slot: u32) -> Allocation {
        let taken = self.entries.swap_remove(slot as usize);
        if let Some(moved) = self.entries.get(slot as usize) {
            let old_slot = self.entries.len();
            let hash = self.hasher.hash_one(moved.address);
            let found = self.index.find_mut(hash, |&s| s as usize == old_slot);
            if let Some(reference) = found {
                *reference = slot;
            }
        }
        self.give_back_memory();
        taken
    }

    fn give_back_memory(&mut self) {
        let target = self.entries.len() * 2;
        if self.entries.capacity() > 4096 && self.entries.capacity() > target * 2 {
            self.entries.shrink_to(target);
            let (entries, hasher) = (&self.entries, &self.hasher);
            self.index.shrink_to(target, |&slot| {
                hasher.hash_one(entries[slot as usize].address)
            });
        }
    }

    fn remember_superseded(&mut self, old: &Allocation, reused_ns: u64) {
        if self.superseded_count >= MAX_SUPERSEDED {
            let oldest = reused_ns.saturating_sub(SUPERSEDED_FOR_NS);
            self.superseded.retain(|_, list| {
                list.retain(|s| s.reused_ns >= oldest);
                !list.is_empty()
            });
            self.superseded_count = self.superseded.values().map(Vec::len).sum();
            if self.superseded_count >= MAX_SUPERSEDED {
                return;
            }
        }
        self.superseded_count += 1;
        self.superseded
            .entry(old.address)
            .or_default()
            .push(Superseded {
                allocated_ns: old.end_ns,
                reused_ns,
            });
    }

    fn forget_superseded(&mut self, address: u64, start_ns: u64) -> bool {
        let Some(list) = self.superseded.get_mut(&address) else {
            return false;
        };
        let belongs = |s: &Superseded| s.allocated_ns <= start_ns && start_ns < s.reused_ns;
        let Some(position) = list.iter().position(belongs) else {
            return false;
        };
        list.swap_remove(position);
        self.superseded_count -= 1;
        if list.is_empty() {
            self.superseded.remove(&address);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation(address: u64, end_ns: u64) -> Allocation {
        Allocation::new(address, 64, end_ns, 0, 1, None)
    }

    #[test]
    fn an_allocation_takes_32_bytes() {
        assert_eq!(size_of::<Allocation>(), 32);
    }

    #[test]
    fn a_late_free_spares_the_newer_allocation() {
        let mut live = LiveSet::default();
        assert_eq!(live.insert(allocation(0x100, 10)), None);
        // The free is entered at 20; its address is handed out again at 30, before it returns.
        assert_eq!(
            live.insert(allocation(0x100, 30)),
            Some(allocation(0x100, 10))
        );
        assert_eq!(live.free(0x100, 20), Freed::Superseded);
        assert_eq!(live.len(), 1);
        assert_eq!(live.free(0x100, 40), Freed::Live(allocation(0x100, 30)));
        assert_eq!(live.free(0x100, 50), Freed::Unknown);
    }

    #[test]
    fn frees_of_several_generations_may_arrive_in_any_order() {
        for order in [[15, 25], [25, 15]] {
            let mut live = LiveSet::default();
            for end_ns in [10, 20, 30] {
                live.insert(allocation(0x100, end_ns));
            }
            for start_ns in order {
                assert_eq!(live.free(0x100, start_ns), Freed::Superseded);
            }
            assert_eq!(live.free(0x100, 15), Freed::Unknown);
            assert_eq!(live.len(), 1);
        }
    }

    #[test]
    fn memory_is_given_back() {
        let mut live = LiveSet::default();
        for address in 0..100_000 {
            live.insert(allocation(address, 1));
        }
        for address in 0..99_990 {
            assert!(matches!(live.free(address, 2), Freed::Live(_)));
        }
        assert_eq!(live.len(), 10);
        assert!(
            live.entries.capacity() <= 8192,
            "{}",
            live.entries.capacity()
        );
        for address in 99_990..100_000 {
            assert!(matches!(live.free(address, 2), Freed::Live(_)));
        }
        assert_eq!(live.iter().count(), 0);
    }
}
