//! Physical memory behind handles, and where it is mapped: the virtual memory management, and
//! memory that is imported from other APIs.
//!
//! Physical memory lives until the last reference to its handle is released and its last mapping
//! is gone. Reserved address space is no memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::superseded::Superseded;

/// Physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Physical {
    /// Its handle, by which it was handed out last.
    pub handle: u64,
    /// References to the handle that are not released.
    pub references: u32,
    /// Bytes that are mapped, each mapping once.
    pub mapped_bytes: u64,
    /// The lowest address that it is mapped at, if it is.
    pub address: Option<u64>,
    mappings: u32,
}

/// A handle's value is used again once its memory has gone.
#[derive(Clone, Copy, Debug)]
struct Handle {
    /// The physical memory; `None` if it was there before us, or is no memory.
    id: Option<u64>,
    references: u32,
    since_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    size_bytes: u64,
    id: Option<u64>,
    since_ns: u64,
}

/// What became of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// Nobody holds it any more.
    Gone(u64),
    /// It is still held, or it is not ours to count.
    Held,
    /// Nothing is known of such a handle or mapping.
    Unknown,
}

/// The physical memory of one process. Each piece has a number of its own: the values of handles
/// are used again while what they stood for is still mapped.
#[derive(Debug, Default)]
pub struct PhysicalMemory {
    pieces: HashMap<u64, Physical>,
    handles: HashMap<u64, Handle>,
    mappings: BTreeMap<u64, Mapping>,
    /// Where pieces are mapped: number and address.
    places: BTreeSet<(u64, u64)>,
    superseded: Superseded,
    last_id: u64,
    reserved: BTreeMap<u64, Reservation>,
    reserved_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reservation {
    size_bytes: u64,
    since_ns: u64,
}

impl PhysicalMemory {
    /// Entries that are kept.
    pub(super) fn kept(&self) -> usize {
        let tables = self.pieces.len() + self.handles.len() + self.mappings.len();
        tables + self.places.len() + self.reserved.len() + self.superseded.len()
    }

    /// Frees that are on their way are remembered no more, or again.
    pub(super) fn set_full(&mut self, is_full: bool) {
        self.superseded.is_full = is_full;
    }

    /// The piece of this number.
    pub fn get(&self, id: u64) -> Option<&Physical> {
        self.pieces.get(&id)
    }

    /// Bytes of address space that are reserved.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// Enters a new handle of new physical memory. Returns its number, and what happened to memory
    /// whose handle had the same value: its release is still on the way.
    pub(super) fn create(&mut self, handle: u64, end_ns: u64) -> (u64, Released) {
        self.last_id += 1;
        let id = self.last_id;
        let piece = Physical {
            handle,
            references: 1,
            mapped_bytes: 0,
            address: None,
            mappings: 0,
        };
        self.pieces.insert(id, piece);
        (id, self.enter(handle, Some(id), end_ns))
    }

    /// Enters a handle that is no memory.
    pub(super) fn create_other(&mut self, handle: u64, end_ns: u64) -> Released {
        self.enter(handle, None, end_ns)
    }

    fn enter(&mut self, handle: u64, id: Option<u64>, end_ns: u64) -> Released {
        let new = Handle {
            id,
            references: 1,
            since_ns: end_ns,
        };
        let Some(old) = self.handles.insert(handle, new) else {
            return Released::Held;
        };
        self.superseded
            .remember(handle, old.since_ns, end_ns, old.references);
        let Some(piece) = old.id.and_then(|id| self.pieces.get_mut(&id)) else {
            return Released::Held;
        };
        piece.references = 0;
        self.collect(old.id)
    }

    /// One more reference, by an address that is mapped.
    pub(super) fn retain(&mut self, address: u64, handle: u64, end_ns: u64) {
        let id = self.mapping_of(address).and_then(|mapping| mapping.id);
        let entry = self.handles.entry(handle).or_insert(Handle {
            id,
            references: 0,
            since_ns: end_ns,
        });
        entry.references += 1;
        if let Some(piece) = entry.id.and_then(|id| self.pieces.get_mut(&id)) {
            piece.handle = handle;
            piece.references += 1;
        }
    }

    /// A release that was entered at `start_ns` has returned.
    pub(super) fn release(&mut self, handle: u64, start_ns: u64) -> Released {
        let Some(entry) = self.handles.get_mut(&handle) else {
            let known = self.superseded.forget(handle, start_ns);
            return if known {
                Released::Held
            } else {
                Released::Unknown
            };
        };
        if entry.since_ns > start_ns {
            let known = self.superseded.forget(handle, start_ns);
            return if known {
                Released::Held
            } else {
                Released::Unknown
            };
        }
        let id = entry.id;
        entry.references -= 1;
        if entry.references == 0 {
            self.handles.remove(&handle);
        }
        if let Some(piece) = id.and_then(|id| self.pieces.get_mut(&id)) {
            piece.references = piece.references.saturating_sub(1);
        }
        self.collect(id)
    }

    /// The physical memory behind `handle`, if it is known.
    pub(super) fn of_handle(&self, handle: u64) -> Option<u64> {
        self.handles.get(&handle).and_then(|h| h.id)
    }

    /// Maps `size_bytes` of `handle` at `address`. Returns what became of memory that was mapped
    /// there: its unmapping is still on the way.
    pub(super) fn map(
        &mut self,
        address: u64,
        size_bytes: u64,
        handle: u64,
        end_ns: u64,
    ) -> Vec<Released> {
        let gone = self.unmap(address, size_bytes, u64::MAX);
        let id = self.of_handle(handle);
        let mapping = Mapping {
            size_bytes,
            id,
            since_ns: end_ns,
        };
        self.mappings.insert(address, mapping);
        if let Some((id, piece)) = id.and_then(|id| Some((id, self.pieces.get_mut(&id)?))) {
            piece.mappings += 1;
            piece.mapped_bytes = piece.mapped_bytes.saturating_add(size_bytes);
            piece.address = Some(piece.address.map_or(address, |lowest| lowest.min(address)));
            self.places.insert((id, address));
        }
        gone
    }

    /// Takes away the mappings that begin within `size_bytes` from `address` and were there when
    /// the call was entered at `start_ns`.
    pub(super) fn unmap(&mut self, address: u64, size_bytes: u64, start_ns: u64) -> Vec<Released> {
        let end = address.saturating_add(size_bytes.max(1));
        let within = self.mappings.range(address..end);
        let old = within.filter(|(_, mapping)| mapping.since_ns <= start_ns);
        let starts: Vec<_> = old.map(|(&start, _)| start).collect();
        starts.into_iter().map(|at| self.unmap_one(at)).collect()
    }

    fn unmap_one(&mut self, start: u64) -> Released {
        let Some(mapping) = self.mappings.remove(&start) else {
            return Released::Unknown;
        };
        let Some((id, piece)) = mapping
            .id
            .and_then(|id| self.pieces.get_mut(&id).map(|piece| (id, piece)))
        else {
            return Released::Held;
        };
        piece.mappings -= 1;
        piece.mapped_bytes = piece.mapped_bytes.saturating_sub(mapping.size_bytes);
        self.places.remove(&(id, start));
        if piece.address == Some(start) {
            let mut others = self.places.range((id, 0)..=(id, u64::MAX));
            piece.address = others.next().map(|&(_, at)| at);
        }
        self.collect(Some(id))
    }

    /// Forgets the piece `id` if nobody holds it.
    fn collect(&mut self, id: Option<u64>) -> Released {
        let Some(id) = id else {
            return Released::Held;
        };
        match self.pieces.get(&id) {
            Some(piece) if piece.references == 0 && piece.mappings == 0 => {
                self.pieces.remove(&id);
                Released::Gone(id)
            }
            _ => Released::Held,
        }
    }

    fn mapping_of(&self, address: u64) -> Option<&Mapping> {
        let (&start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.size_bytes).then_some(mapping)
    }

    /// Where the reserved range of addresses begins that `address` is in.
    pub fn range_of(&self, address: u64) -> Option<u64> {
        let (&start, range) = self.reserved.range(..=address).next_back()?;
        (address - start < range.size_bytes).then_some(start)
    }

    /// What is mapped in the reserved range that begins at `start`: addresses and bytes, in order.
    pub(super) fn mapped_in(&self, start: u64) -> Vec<(u64, u64)> {
        let Some(range) = self.reserved.get(&start) else {
            return Vec::new();
        };
        let end = start.saturating_add(range.size_bytes);
        let pieces = self.mappings.range(start..end);
        pieces.map(|(&at, piece)| (at, piece.size_bytes)).collect()
    }

    /// Bytes of the mappings that begin within `size_bytes` from `address`.
    pub(super) fn mapped_bytes_at(&self, address: u64, size_bytes: u64) -> u64 {
        let end = address.saturating_add(size_bytes.max(1));
        let pieces = self.mappings.range(address..end);
        pieces.fold(0, |sum: u64, (_, piece)| {
            sum.saturating_add(piece.size_bytes)
        })
    }

    /// The pieces whose mappings begin within `size_bytes` from `address`, one for each mapping.
    pub(super) fn mapped_ids(&self, address: u64, size_bytes: u64) -> Vec<u64> {
        let end = address.saturating_add(size_bytes.max(1));
        let mappings = self.mappings.range(address..end);
        mappings.filter_map(|(_, mapping)| mapping.id).collect()
    }

    /// What is mapped from this address on: bytes, and the number of the piece if it is memory that was
    /// seen to be created.
    pub fn mapping_at(&self, start: u64) -> Option<(u64, Option<u64>)> {
        let mapping = self.mappings.get(&start)?;
        Some((mapping.size_bytes, mapping.id))
    }

    pub(super) fn reserve(&mut self, address: u64, size_bytes: u64, end_ns: u64) {
        let new = Reservation {
            size_bytes,
            since_ns: end_ns,
        };
        let old = self.reserved.insert(address, new);
        let old_bytes = old.map_or(0, |old| old.size_bytes);
        let others = self.reserved_bytes.saturating_sub(old_bytes);
        self.reserved_bytes = others.saturating_add(size_bytes);
    }

    /// A call that was entered at `start_ns` gave back what was reserved at `address` then.
    pub(super) fn unreserve(&mut self, address: u64, start_ns: u64) {
        let old = self.reserved.get(&address);
        if let Some(old) = old.filter(|old| old.since_ns <= start_ns) {
            self.reserved_bytes = self.reserved_bytes.saturating_sub(old.size_bytes);
            self.reserved.remove(&address);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lives_until_the_last_reference_and_the_last_mapping() {
        let mut memory = PhysicalMemory::default();
        let (id, _) = memory.create(0x50, 10);
        assert_eq!(memory.map(0x1000, 64, 0x50, 11), []);
        assert_eq!(memory.map(0x2000, 64, 0x50, 12), []);
        memory.retain(0x1030, 0x50, 13);
        assert_eq!(memory.release(0x50, 14), Released::Held);
        assert_eq!(memory.release(0x50, 15), Released::Held);
        assert_eq!(memory.release(0x50, 16), Released::Unknown);
        let piece = memory.get(id).unwrap();
        assert_eq!((piece.mapped_bytes, piece.address), (128, Some(0x1000)));
        assert_eq!(memory.unmap(0x1000, 64, 17), [Released::Held]);
        assert_eq!(memory.get(id).unwrap().address, Some(0x2000));
        // It can be had back by its address.
        memory.retain(0x2000, 0x51, 18);
        assert_eq!(memory.unmap(0x2000, 64, 19), [Released::Held]);
        assert_eq!(memory.release(0x51, 20), Released::Gone(id));
    }

    #[test]
    fn a_handle_is_used_again_while_the_old_memory_is_mapped() {
        let mut memory = PhysicalMemory::default();
        let (old, _) = memory.create(0x50, 10);
        memory.map(0x1000, 64, 0x50, 11);
        assert_eq!(memory.release(0x50, 12), Released::Held);
        let (new, gave_way) = memory.create(0x50, 13);
        assert_eq!(gave_way, Released::Held);
        assert_eq!(memory.unmap(0x1000, 64, 14), [Released::Gone(old)]);
        assert_eq!(memory.release(0x50, 15), Released::Gone(new));
    }

    #[test]
    fn late_releases_and_unmappings_spare_what_is_newer() {
        let mut memory = PhysicalMemory::default();
        let (old, _) = memory.create(0x50, 10);
        // Released at 20, handed out again at 30, before the release has returned.
        let (new, gave_way) = memory.create(0x50, 30);
        assert_eq!(gave_way, Released::Gone(old));
        assert_eq!(memory.release(0x50, 20), Released::Held);
        memory.map(0x1000, 64, 0x50, 40);
        assert_eq!(memory.unmap(0x1000, 64, 35), []);
        assert_eq!(memory.unmap(0x1000, 64, 45), [Released::Held]);
        assert_eq!(memory.release(0x50, 50), Released::Gone(new));
    }

    #[test]
    fn handles_from_before_and_of_no_memory_disturb_nothing() {
        let mut memory = PhysicalMemory::default();
        memory.retain(0x9000, 0x60, 10);
        assert_eq!(memory.release(0x60, 11), Released::Held);
        assert_eq!(memory.release(0x60, 12), Released::Unknown);
        memory.create_other(0x70, 13);
        memory.map(0x1000, 64, 0x70, 14);
        assert_eq!(memory.release(0x70, 15), Released::Held);
        assert_eq!(memory.unmap(0x1000, 64, 16), [Released::Held]);
    }

    #[test]
    fn reserved_address_space_is_a_sum_of_its_own() {
        let mut memory = PhysicalMemory::default();
        memory.reserve(0x1000, 100, 10);
        memory.reserve(0x2000, 50, 11);
        memory.unreserve(0x1000, 12);
        memory.unreserve(0x7777, 13);
        assert_eq!(memory.reserved_bytes(), 50);
        // Given back at 20, reserved again at 30, before the call has returned.
        memory.reserve(0x2000, 70, 30);
        memory.unreserve(0x2000, 20);
        assert_eq!(memory.reserved_bytes(), 70);
    }

    #[test]
    fn a_handle_of_many_references_gives_way_at_once() {
        let mut memory = PhysicalMemory::default();
        memory.create(0x50, 10);
        memory.map(0x1000, 64, 0x50, 11);
        for _ in 0..100_000 {
            memory.retain(0x1000, 0x50, 12);
        }
        memory.create(0x50, 30);
        for _ in 0..100_001 {
            assert_eq!(memory.release(0x50, 20), Released::Held);
        }
        assert_eq!(memory.release(0x50, 20), Released::Unknown);
    }

    #[test]
    fn a_hundred_thousand_mappings_are_unmapped_soon() {
        let mut memory = PhysicalMemory::default();
        let (id, _) = memory.create(0x50, 10);
        let addresses = || (0..100_000).map(|n| 0x10_0000 + n * 64);
        for address in addresses() {
            memory.map(address, 64, 0x50, 11);
        }
        for address in addresses().take(99_999) {
            memory.unmap(address, 64, 12);
            assert!(memory.get(id).unwrap().address > Some(address));
        }
    }
}
