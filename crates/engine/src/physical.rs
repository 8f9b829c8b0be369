//! Physical memory behind handles, and its mappings: virtual memory management, and memory imported
//! from other APIs.
//!
//! Physical memory lives until the last reference to its handle is released and its last mapping is
//! removed. Reserved address space takes no memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::superseded::Superseded;

/// A piece of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalAllocation {
    /// The handle under which it was last returned to the program.
    pub handle: u64,
    /// References to the handle that have not been released.
    pub references: u32,
    /// Bytes mapped, summed over all mappings.
    pub mapped_bytes: u64,
    /// Its lowest mapped address, if it is mapped.
    pub address: Option<u64>,
    mappings: u32,
}

/// A handle; its value is reused once its memory is gone.
#[derive(Clone, Copy, Debug)]
struct PhysicalHandle {
    /// Number of the physical memory; `None` if it was created before tracing, or the handle is not
    /// of memory.
    id: Option<u64>,
    references: u32,
    since_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct VmmMapping {
    size_bytes: u64,
    id: Option<u64>,
    since_ns: u64,
}

/// Effect of a release or unmapping on physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// The piece with this number is gone.
    Gone(u64),
    /// The memory is still held, or it is not counted here.
    Held,
    /// The handle or mapping is unknown.
    Unknown,
}

/// The physical memory of one process. Each piece has a number of its own, as the value of a handle
/// is reused while the former memory is still mapped.
#[derive(Debug, Default)]
pub struct PhysicalMemory {
    pieces: HashMap<u64, PhysicalAllocation>,
    handles: HashMap<u64, PhysicalHandle>,
    mappings: BTreeMap<u64, VmmMapping>,
    /// Mappings of each piece: number and address.
    places: BTreeSet<(u64, u64)>,
    superseded: Superseded,
    last_id: u64,
    reserved: BTreeMap<u64, Reservation>,
    /// Bytes of reserved address space.
    pub reserved_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reservation {
    size_bytes: u64,
    since_ns: u64,
}

impl PhysicalMemory {
    /// Number of entries kept.
    pub(super) fn kept(&self) -> usize {
        let tables = self.pieces.len() + self.handles.len() + self.mappings.len();
        tables + self.places.len() + self.reserved.len() + self.superseded.len()
    }

    /// The piece with this number.
    pub fn get(&self, id: u64) -> Option<&PhysicalAllocation> {
        self.pieces.get(&id)
    }

    /// Adds physical memory with a new handle. Returns its number, and the effect on former memory
    /// with the same handle value, whose release is in flight.
    pub(super) fn create(&mut self, handle: u64, end_ns: u64) -> (u64, Released) {
        self.last_id += 1;
        let id = self.last_id;
        let piece = PhysicalAllocation {
            handle,
            references: 1,
            mapped_bytes: 0,
            address: None,
            mappings: 0,
        };
        self.pieces.insert(id, piece);
        (id, self.enter(handle, Some(id), end_ns))
    }

    /// Adds a handle: of the memory with this number, or not of memory.
    pub(super) fn enter(&mut self, handle: u64, id: Option<u64>, end_ns: u64) -> Released {
        let new = PhysicalHandle {
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

    /// Adds a reference, obtained through a mapped address.
    pub(super) fn retain(&mut self, address: u64, handle: u64, end_ns: u64) {
        let id = self.mapping_of(address).and_then(|mapping| mapping.id);
        let entry = self.handles.entry(handle).or_insert(PhysicalHandle {
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

    /// Applies a release that was entered at `start_ns` and has returned.
    pub(super) fn release(&mut self, handle: u64, start_ns: u64) -> Released {
        let entry = self.handles.get_mut(&handle);
        let Some(entry) = entry.filter(|entry| entry.since_ns <= start_ns) else {
            return match self.superseded.forget(handle, start_ns) {
                true => Released::Held,
                false => Released::Unknown,
            };
        };
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

    /// Number of the physical memory behind `handle`, if known.
    pub(super) fn of_handle(&self, handle: u64) -> Option<u64> {
        self.handles.get(&handle).and_then(|h| h.id)
    }

    /// Maps `size_bytes` of `handle` at `address`. Returns the effect on memory formerly mapped
    /// there, whose unmapping is in flight.
    pub(super) fn map(
        &mut self,
        address: u64,
        size_bytes: u64,
        handle: u64,
        end_ns: u64,
    ) -> Vec<Released> {
        let gone = self.unmap(address, size_bytes, u64::MAX);
        let id = self.of_handle(handle);
        let mapping = VmmMapping {
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

    /// Removes the mappings that begin in the `size_bytes` from `address`, if they existed when the
    /// call was entered at `start_ns`.
    pub(super) fn unmap(&mut self, address: u64, size_bytes: u64, start_ns: u64) -> Vec<Released> {
        let within = self.mappings_at(address, size_bytes);
        let old = within.filter(|(_, mapping)| mapping.since_ns <= start_ns);
        let starts: Vec<_> = old.map(|(&start, _)| start).collect();
        starts.into_iter().map(|at| self.unmap_one(at)).collect()
    }

    fn unmap_one(&mut self, start: u64) -> Released {
        let Some(mapping) = self.mappings.remove(&start) else {
            return Released::Unknown;
        };
        let piece = mapping
            .id
            .and_then(|id| Some((id, self.pieces.get_mut(&id)?)));
        let Some((id, piece)) = piece else {
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

    /// Drops the piece `id` if it has neither references nor mappings.
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

    /// The mapping around `address`: where it begins, its bytes, and the number of the piece if its creation was seen.
    pub(super) fn mapping_around(&self, address: u64) -> Option<(u64, u64, Option<u64>)> {
        let (&start, mapping) = self.mappings.range(..=address).next_back()?;
        let is_in = address - start < mapping.size_bytes;
        is_in.then_some((start, mapping.size_bytes, mapping.id))
    }

    fn mapping_of(&self, address: u64) -> Option<&VmmMapping> {
        let (&start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.size_bytes).then_some(mapping)
    }

    /// Start of the reserved address range that contains `address`.
    pub fn range_of(&self, address: u64) -> Option<u64> {
        let (&start, range) = self.reserved.range(..=address).next_back()?;
        (address - start < range.size_bytes).then_some(start)
    }

    /// Mappings in the reserved range at `start`: addresses and bytes, in order.
    pub(super) fn mapped_in(&self, start: u64) -> Vec<(u64, u64)> {
        let Some(range) = self.reserved.get(&start) else {
            return Vec::new();
        };
        let end = start.saturating_add(range.size_bytes);
        let pieces = self.mappings.range(start..end);
        pieces.map(|(&at, piece)| (at, piece.size_bytes)).collect()
    }

    /// The mappings that begin in the `size_bytes` from `address`.
    fn mappings_at(
        &self,
        address: u64,
        size_bytes: u64,
    ) -> impl Iterator<Item = (&u64, &VmmMapping)> {
        let end = address.saturating_add(size_bytes.max(1));
        self.mappings.range(address..end)
    }

    /// Their bytes.
    pub(super) fn mapped_bytes_at(&self, address: u64, size_bytes: u64) -> u64 {
        let sizes = self.mappings_at(address, size_bytes);
        sizes.fold(0, |sum, (_, mapping)| {
            sum.saturating_add(mapping.size_bytes)
        })
    }

    /// The mapping at `start`: bytes, and the number of the piece if its creation was seen.
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

    /// Releases the range reserved at `address`, by a call that was entered at `start_ns`. Returns whether
    /// there was one.
    pub(super) fn unreserve(&mut self, address: u64, start_ns: u64) -> bool {
        let old = self.reserved.get(&address);
        let Some(old) = old.filter(|old| old.since_ns <= start_ns) else {
            return false;
        };
        self.reserved_bytes = self.reserved_bytes.saturating_sub(old.size_bytes);
        self.reserved.remove(&address);
        true
    }
}

#[cfg(test)]
mod tests;
