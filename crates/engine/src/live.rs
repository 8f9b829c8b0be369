//! The live allocations of one process, by address and address space.
//!
//! They are in shards: to let one table of ten million grow takes longer than the event ring lasts.

use std::hash::BuildHasher;
use std::mem;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::Allocation;
use super::superseded::Superseded;

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

/// Number of shards of a process with allocations.
const SHARDS: usize = 64;
/// Below this capacity, a table does not shrink.
const MIN_CAPACITY: usize = 64;

/// The live allocations of one process, by key.
#[derive(Debug, Default)]
pub(super) struct LiveSet {
    /// None, or [`SHARDS`] tables.
    shards: Vec<HashTable<Allocation>>,
    len: usize,
    hasher: DefaultHashBuilder,
    pub(super) superseded: Superseded,
}

/// The shard of a hash. The last is twice as large as the first, and so they do not double at
/// the same time.
fn shard(hash: u64) -> usize {
    const ONE: u64 = 1 << 16;
    let even = hash >> 32 & (ONE - 1);
    let skewed = even * (4 * ONE - even) / (3 * ONE);
    (skewed * SHARDS as u64 / ONE) as usize
}

impl LiveSet {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Allocation> {
        self.shards.iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds an allocation; returns the one that it supersedes at its address, if any.
    pub(super) fn insert(&mut self, new: Allocation) -> Option<Allocation> {
        if self.shards.is_empty() {
            self.shards.resize_with(SHARDS, HashTable::new);
        }
        let (key, hasher) = (new.key(), &self.hasher);
        let hash = hasher.hash_one(key);
        let place = self.shards[shard(hash)].entry(
            hash,
            |known| known.key() == key,
            |known| hasher.hash_one(known.key()),
        );
        let old = match place {
            Entry::Vacant(place) => {
                place.insert(new);
                self.len += 1;
                return None;
            }
            Entry::Occupied(mut place) => mem::replace(place.get_mut(), new),
        };
        self.superseded.remember(key, old.end_ns, new.end_ns, 1);
        Some(old)
    }

    /// The live allocation under `key`.
    pub(super) fn get(&self, key: u64) -> Option<&Allocation> {
        let hash = self.hasher.hash_one(key);
        let shard = self.shards.get(shard(hash))?;
        shard.find(hash, |known| known.key() == key)
    }

    /// The live allocation under `key`, which keeps its key.
    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut Allocation> {
        let hash = self.hasher.hash_one(key);
        let shard = self.shards.get_mut(shard(hash))?;
        shard.find_mut(hash, |known| known.key() == key)
    }

    /// Removes the allocation under `key`, whenever it was made.
    pub(super) fn remove(&mut self, key: u64) -> Option<Allocation> {
        self.remove_before(key, u64::MAX)
    }

    /// Removes all allocations for which `ends` returns true; returns them, the oldest first: a replay has them
    /// in the same order.
    pub(super) fn remove_if(&mut self, ends: impl Fn(&Allocation) -> bool) -> Vec<Allocation> {
        let mut gone: Vec<_> = self.iter().filter(|a| ends(a)).copied().collect();
        gone.sort_unstable_by_key(|allocation| (allocation.end_ns, allocation.key()));
        for allocation in &gone {
            self.remove(allocation.key());
        }
        gone
    }

    /// Removes the allocation that was live under `key` when its free was entered at `start_ns`.
    pub(super) fn free(&mut self, key: u64, start_ns: u64) -> Freed {
        match self.remove_before(key, start_ns) {
            Some(gone) => Freed::Live(gone),
            None if self.superseded.forget(key, start_ns) => Freed::Superseded,
            None => Freed::Unknown,
        }
    }

    /// Removes the allocation under `key`, unless it is newer than `start_ns`.
    fn remove_before(&mut self, key: u64, start_ns: u64) -> Option<Allocation> {
        let hasher = &self.hasher;
        let hash = hasher.hash_one(key);
        let shard = self.shards.get_mut(shard(hash))?;
        let found = shard.find_entry(hash, |known| known.key() == key && known.end_ns <= start_ns);
        let (gone, _) = found.ok()?.remove();
        self.len -= 1;
        if shard.capacity() > MIN_CAPACITY && shard.capacity() > shard.len() * 4 {
            shard.shrink_to(shard.len() * 2, |known| hasher.hash_one(known.key()));
        }
        Some(gone)
    }
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
            tid: 0,
            row: 1,
            site: 0,
            kind: MemoryKind::Device,
            space: AddressSpace::Device,
            place: AllocationPlace::Unknown,
            slot: 0,
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
    fn a_graph_that_frees_its_memory_takes_little_room() {
        let mut live = LiveSet::default();
        for end_ns in 0..1_000_000 {
            live.insert(Allocation::new(&NewAllocation {
                address: 0x100,
                size_bytes: 64,
                end_ns,
                tid: 0,
                row: 1,
                site: 0,
                kind: MemoryKind::Graph,
                space: AddressSpace::Device,
                place: AllocationPlace::Unknown,
                slot: 0,
            }));
        }
        assert!(live.superseded.len() <= 1 << 16);
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
        let capacity: usize = live.shards.iter().map(HashTable::capacity).sum();
        assert!(capacity <= SHARDS * MIN_CAPACITY, "{capacity}");
        for address in 99_990..100_000 {
            assert!(matches!(live.free(address, 2), Freed::Live(_)));
        }
        assert_eq!(live.iter().count(), 0);
    }

    #[test]
    fn shards_grow_one_after_the_other() {
        let mut live = LiveSet::default();
        let mut capacity: usize = 0;
        for thousand in 0..300 {
            for address in 0..1000 {
                let new = allocation(thousand * 1000 + address, 1);
                assert_eq!(live.insert(new), None);
            }
            let before = capacity;
            capacity = live.shards.iter().map(HashTable::capacity).sum();
            assert!(thousand < 100 || capacity <= before + before / 8);
        }
        assert_eq!((live.len(), live.iter().count()), (300_000, 300_000));
        assert!(capacity < 600_000, "{capacity}");
    }
}
