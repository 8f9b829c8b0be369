//! The live allocations of one process: stored densely, so that millions of them take little memory
//! and are quick to walk, with an index by address.

mod bound;
mod first;
mod index;
mod store;

use std::hash::BuildHasher;
use std::hint::black_box;

use hashbrown::DefaultHashBuilder;

pub use bound::AllocationOrder;
pub(super) use first::Holding;
pub use first::TopN;
use index::SlotIndex;
use store::{Slot, Store};

use super::Allocation;
use super::superseded::Superseded;
use gpuprobe_cuda::MemoryKind;

/// The allocation that a successful free removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    /// This allocation, live until now.
    Live(Allocation),
    /// One that was already superseded by a newer one at the same address.
    Superseded,
    /// No known allocation at the address.
    Unknown,
}

/// Number of allocations that, with their index, exceed a CPU's caches: with fewer, prefetching
/// costs more than it saves (`cargo bench --bench micro -- ledger`).
const LARGE: usize = 1 << 18;

/// The live allocations of one process, by address.
#[derive(Debug, Default)]
pub(super) struct LiveSet {
    store: Store,
    /// Slots in the store, by the hash of the key.
    index: SlotIndex,
    hasher: DefaultHashBuilder,
    superseded: Superseded,
}

impl LiveSet {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.store.iter()
    }

    /// Former allocations with frees that have not returned yet.
    pub(super) fn superseded(&mut self) -> &mut Superseded {
        &mut self.superseded
    }

    /// Number of superseded allocations with frees in flight.
    pub(super) fn frees_in_flight(&self) -> usize {
        self.superseded.len()
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the set exceeds a CPU's caches.
    pub(super) fn is_large(&self) -> bool {
        self.len() > LARGE
    }

    /// Looks up some dozens of `keys`, so that they are cached for the lookups that follow. Done
    /// step by step for all of them, as the steps of one lookup wait for each other.
    pub(super) fn expect(&self, keys: impl Iterator<Item = u64>) {
        if !self.is_large() {
            return;
        }
        let hashes: Vec<_> = keys.map(|key| self.hash(key)).collect();
        for &hash in &hashes {
            self.index.prefetch(hash);
        }
        let slots = hashes.iter().map(|&hash| self.index.find(hash, |_| true));
        let slots: Vec<_> = slots.collect();
        for &slot in slots.iter().flatten() {
            black_box(self.store.get(slot).key());
        }
    }

    /// The allocations, grouped as reports need them.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Adds an allocation; returns the one that it supersedes at its address, if any.
    pub(super) fn insert(&mut self, new: Allocation) -> Option<Allocation> {
        let key = new.key();
        let hash = self.hash(key);
        let store = &self.store;
        let held = self
            .index
            .find_mut(hash, |slot| store.get(slot).key() == key);
        let Some(held) = held else {
            if let Some(slot) = self.store.put(new) {
                self.index.insert(hash, slot);
            }
            return None;
        };
        // Before anything moves.
        let old = self.store.take(*held);
        if let Some(slot) = self.store.put(new) {
            *held = slot;
        } else {
            let gone = *held;
            self.index.remove(hash, |slot| slot == gone);
        }
        // A graph that frees its own memory supersedes it at each launch: usually no free of it is
        // in flight.
        if old.kind() == MemoryKind::Graph && new.kind() == MemoryKind::Graph {
            self.superseded.drop_oldest(key);
        }
        self.superseded.remember(key, old.end_ns, new.end_ns, 1);
        Some(old)
    }

    /// Changes the size of the allocation under `key`. Returns it as it was.
    pub(super) fn resize(&mut self, key: u64, size_bytes: u64) -> Option<Allocation> {
        let slot = self.find(key)?;
        Some(self.store.resize(slot, size_bytes))
    }

    /// Sets the stream, and the bytes beyond the requested size, of the allocation under `key`, if
    /// any.
    pub(super) fn note_request(&mut self, key: u64, stream: u8, more: u16) {
        if let Some(slot) = self.find(key) {
            self.store.note_request(slot, stream, more);
        }
    }

    /// The live allocation under `key`.
    pub(super) fn get(&self, key: u64) -> Option<&Allocation> {
        self.find(key).map(|slot| self.store.get(slot))
    }

    fn find(&self, key: u64) -> Option<Slot> {
        let is_it = |slot| self.store.get(slot).key() == key;
        self.index.find(self.hash(key), is_it)
    }

    fn hash(&self, key: u64) -> u32 {
        hash(&self.hasher, key)
    }

    /// Removes the allocation under `key`, whenever it was made.
    pub(super) fn remove(&mut self, key: u64) -> Option<Allocation> {
        match self.free(key, u64::MAX) {
            Freed::Live(allocation) => Some(allocation),
            Freed::Superseded | Freed::Unknown => None,
        }
    }

    /// Removes all allocations for which `ends` returns true.
    pub(super) fn remove_if(&mut self, ends: impl Fn(&Allocation) -> bool) -> Vec<Allocation> {
        let gone: Vec<_> = self.iter().filter(|a| ends(a)).copied().collect();
        for allocation in &gone {
            self.remove(allocation.key());
        }
        gone
    }

    /// Removes the allocation that was live under `key` when its free was entered at `start_ns`.
    pub(super) fn free(&mut self, key: u64, start_ns: u64) -> Freed {
        let hash = self.hash(key);
        let store = &self.store;
        let found = self.index.remove(hash, |slot| {
            let entry = store.get(slot);
            // An allocation newer than the one that was freed stays.
            entry.key() == key && entry.end_ns <= start_ns
        });
        if let Some(slot) = found {
            let gone = self.store.take(slot);
            self.give_back_memory(slot);
            return Freed::Live(gone);
        }
        if self.superseded.forget(key, start_ns) {
            Freed::Superseded
        } else {
            Freed::Unknown
        }
    }

    /// Returns memory to the system after an allocation was removed from `slot`.
    fn give_back_memory(&mut self, slot: Slot) {
        if self.store.is_sparse(slot) {
            let (index, hasher) = (&mut self.index, &self.hasher);
            self.store.pack(slot, |from, to, allocation| {
                let hash = hash(hasher, allocation.key());
                if let Some(slot) = index.find_mut(hash, |slot| slot == from) {
                    *slot = to;
                }
            });
        }
    }
}

/// The half of the hash that the index keeps.
fn hash(hasher: &DefaultHashBuilder, key: u64) -> u32 {
    (hasher.hash_one(key) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::{AllocationPlace, NewAllocation, key};
    use gpuprobe_cuda::{AddressSpace, MemoryKind};

    fn allocation(address: u64, end_ns: u64) -> Allocation {
        Allocation::new(&NewAllocation {
            address,
            size_bytes: 64,
            end_ns,
            thread: 0,
            row: 1,
            site: 0,
            kind: MemoryKind::Device,
            space: AddressSpace::Device,
            place: AllocationPlace::Unknown,
            slot: 0,
            context: 0,
        })
    }

    #[test]
    fn address_spaces_do_not_mix() {
        let mut live = LiveSet::default();
        live.insert(allocation(0x100, 10));
        let pinned = key(AddressSpace::Pinned, 0x100);
        assert_eq!(live.get(pinned), None);
        assert_eq!(live.free(pinned, 20), Freed::Unknown);
        assert_eq!(live.remove_if(|a| a.size_bytes == 64).len(), 1);
        assert_eq!(live.len(), 0);
    }

    #[test]
    fn a_late_free_keeps_the_newer_allocation() {
        let mut live = LiveSet::default();
        assert_eq!(live.insert(allocation(0x100, 10)), None);
        // The free is entered at 20; its address is handed out again at 30, before the free
        // returns.
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
    fn a_graph_that_frees_its_memory_takes_little_room() {
        let mut live = LiveSet::default();
        for end_ns in 0..1_000_000 {
            live.insert(Allocation::new(&NewAllocation {
                address: 0x100,
                size_bytes: 64,
                end_ns,
                thread: 0,
                row: 1,
                site: 0,
                kind: MemoryKind::Graph,
                space: AddressSpace::Device,
                place: AllocationPlace::Unknown,
                slot: 0,
                context: 0,
            }));
        }
        assert!(live.superseded.len() <= 64);
        assert_eq!(live.free(0x100, 999_998), Freed::Superseded);
    }

    #[test]
    fn memory_is_returned() {
        let mut live = LiveSet::default();
        for address in 0..100_000 {
            live.insert(allocation(address, 1));
        }
        for address in 0..99_990 {
            assert!(matches!(live.free(address, 2), Freed::Live(_)));
        }
        assert_eq!(live.len(), 10);
        let capacity = live.store.capacity();
        assert!(capacity <= 8192, "{capacity}");
        for address in 99_990..100_000 {
            assert!(matches!(live.free(address, 2), Freed::Live(_)));
        }
        assert_eq!(live.iter().count(), 0);
    }

    #[test]
    fn call_sites_that_hold_nothing_take_little_room() {
        let mut live = LiveSet::default();
        for site in 0..20_000 {
            let mut of_site = allocation(0x100, 1);
            of_site.site = site;
            live.insert(of_site);
            assert_eq!(live.free(0x100, 2), Freed::Live(of_site));
        }
        let groups = live.store.groups.len();
        assert!(groups < 2000, "{groups}");
    }

    #[test]
    fn frees_in_flight_are_many_unless_graphs_free_their_own_memory() {
        use MemoryKind::{Device, Graph};
        for (kinds, left) in [
            ([Device, Device], 99),
            ([Device, Graph], 99),
            ([Graph, Graph], 64),
        ] {
            let mut live = LiveSet::default();
            for n in 0..100 {
                live.insert(Allocation::new(&NewAllocation {
                    address: 0x100,
                    size_bytes: 64,
                    end_ns: n as u64,
                    thread: 0,
                    row: 1,
                    site: 0,
                    kind: kinds[n % 2],
                    space: AddressSpace::Device,
                    place: AllocationPlace::Unknown,
                    slot: 0,
                    context: 0,
                }));
            }
            assert_eq!(live.frees_in_flight(), left, "{kinds:?}");
        }
    }
}
