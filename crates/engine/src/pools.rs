//! Pools of stream-ordered memory. Memory allocated from a pool is used; memory that the pool holds
//! from the driver is reserved. It is usually more, and known only when the program queries it.

use super::allocation::AllocationPlace;
use super::totals::Total;
use gpuprobe_cuda::{AT_LOCALITY_DOMAIN, Belongs};
use gpuprobe_model::event::MAX_DEVICES;

/// A memory pool of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolAccount {
    /// Its handle; `None` for a device's default pool that the program never queried.
    pub handle: Option<u64>,
    /// Memory allocated from it.
    pub used: Total,
    /// Bytes reserved, as last reported by the driver; `None` if the program never queried it, or
    /// if the value is known to be outdated.
    pub reserved_bytes: Option<u64>,
    location: PoolLocation,
    /// Whether `cuMemAllocAsync` allocates from it on its device.
    is_current: bool,
    is_default: bool,
    destroyed: bool,
}

/// Location of a pool's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolLocation {
    place: AllocationPlace,
    /// Its `CUmemAllocationType` if it is not plain memory: of managed memory, a device has a separate default pool.
    special: u64,
    /// Which part of the device it is limited to; 0 if there is one.
    domain: u8,
}

/// Pools that are told apart: their slots fit a byte. Memory of further ones has no pool.
const MAX_POOLS: usize = 255;
/// Memory types `CU_MEM_ALLOCATION_TYPE_PINNED`, which is plain memory, and `_MANAGED`, the last that is known.
const PINNED: u64 = 1;
const MANAGED: u64 = 2;
/// Pool attribute `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: u64 = 4;
/// Pool attribute `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED_CURRENT: u64 = 5;

/// The pools of one process.
#[derive(Debug, Default)]
pub struct PoolAccounts {
    list: Vec<PoolAccount>,
}

/// Location of memory by its `CUmemLocation`: its type, which is 0 for calls of older versions without
/// one, and its number in the upper half. That of a part of a device has the device's in its first byte.
pub(super) fn place(location: u64, device: Option<u16>) -> AllocationPlace {
    match (location as u32, Belongs::at(location as u32)) {
        (AT_LOCALITY_DOMAIN, _) => {
            let device = (location >> 32 & 0xff) as u16;
            Some(device).filter(|&device| device < MAX_DEVICES).into()
        }
        (0, _) | (_, Some(Belongs::Gpu)) => device.into(),
        (_, Some(Belongs::Host)) => AllocationPlace::Host,
        _ => AllocationPlace::Elsewhere,
    }
}

/// Location of a pool, by location and memory type; both are 0 for calls of older versions without
/// them.
pub(super) fn location(location: u64, device: Option<u16>, memory_type: u64) -> PoolLocation {
    let is_part = location as u32 == AT_LOCALITY_DOMAIN;
    PoolLocation {
        place: place(location, device),
        special: if memory_type > PINNED { memory_type } else { 0 },
        domain: if is_part { (location >> 40) as u8 } else { 0 },
    }
}

impl PoolLocation {
    /// Whether its types are those of a CUDA that is known.
    pub(super) fn is_known(self) -> bool {
        self.place != AllocationPlace::Elsewhere && self.special <= MANAGED
    }
}

impl From<AllocationPlace> for PoolLocation {
    fn from(place: AllocationPlace) -> Self {
        let (special, domain) = (0, 0);
        Self {
            place,
            special,
            domain,
        }
    }
}

impl PoolAccounts {
    /// Number of pools kept.
    pub(super) fn kept(&self) -> usize {
        self.list.len()
    }

    /// Pools that exist, or from which memory is still allocated.
    pub fn iter(&self) -> impl Iterator<Item = &PoolAccount> {
        let shown = |p: &&PoolAccount| !p.destroyed || p.used.allocations > 0;
        self.list.iter().filter(shown)
    }

    /// The pool in `slot`.
    pub fn get(&self, slot: u8) -> Option<&PoolAccount> {
        self.list.get(usize::from(slot))
    }

    /// Location of memory from the pool in `slot`, if it differs from the call's device.
    pub(super) fn place(&self, slot: u8) -> Option<AllocationPlace> {
        self.get(slot).map(|pool| pool.location.place)
    }

    pub(super) fn create(&mut self, handle: u64, location: PoolLocation) {
        self.put(PoolAccount::new(Some(handle), location));
    }

    pub(super) fn destroy(&mut self, handle: u64) {
        if let Some(pool) = self.find(handle) {
            pool.destroyed = true;
            let location = pool.location;
            if !std::mem::take(&mut pool.is_current) {
                return;
            }
            // The device returns to its default pool.
            let default = |p: &&mut PoolAccount| p.is_default && p.location == location;
            if let Some(pool) = self.list.iter_mut().find(default) {
                pool.is_current = true;
            }
        }
    }

    /// An attribute is set. With another threshold, the pool may release memory whenever the program waits.
    pub(super) fn limit(&mut self, handle: u64, which: u64) {
        if which == RELEASE_THRESHOLD {
            self.trim(handle);
        }
    }

    pub(super) fn trim(&mut self, handle: u64) {
        if let Some(pool) = self.find(handle) {
            pool.reserved_bytes = None;
        }
    }

    pub(super) fn attribute(
        &mut self,
        handle: u64,
        which: u64,
        value: u64,
        place: AllocationPlace,
    ) {
        if which == RESERVED_CURRENT {
            let slot = self.slot(handle, place);
            let pool = self.list.get_mut(usize::from(slot));
            if let Some(pool) = pool {
                pool.reserved_bytes = Some(value);
            }
        }
    }

    /// Notes that a query returned `handle` as the pool of the device.
    pub(super) fn learn(&mut self, handle: u64, location: PoolLocation) {
        if self.slot_of(handle).is_some() {
            return;
        }
        let unnamed = |p: &&mut PoolAccount| p.handle.is_none() && p.location == location;
        match self.list.iter_mut().find(unnamed) {
            Some(pool) => pool.handle = Some(handle),
            None => drop(self.put_default(Some(handle), location)),
        }
    }

    /// Sets the current pool of the device.
    pub(super) fn set_current(&mut self, handle: u64, location: PoolLocation) {
        let known = self.slot_of(handle);
        let slot = known.unwrap_or_else(|| self.put(PoolAccount::new(Some(handle), location)));
        for (index, pool) in self.list.iter_mut().enumerate() {
            if pool.location == location {
                pool.is_current = index == slot;
            }
        }
    }

    /// Slot of the pool `handle`; of the device's current pool if it is 0.
    pub(super) fn slot(&mut self, handle: u64, place: AllocationPlace) -> u8 {
        let location = PoolLocation::from(place);
        let slot = if handle == 0 {
            self.current(location)
                .unwrap_or_else(|| self.put_default(None, location))
        } else {
            self.slot_of(handle)
                .unwrap_or_else(|| self.put(PoolAccount::new(Some(handle), location)))
        };
        u8::try_from(slot).unwrap_or(u8::MAX)
    }

    pub(super) fn add(&mut self, slot: u8, bytes: u64) {
        if let Some(pool) = self.list.get_mut(usize::from(slot)) {
            pool.used.add(bytes);
            // The reserved size is outdated if it is less than what is used.
            pool.reserved_bytes = pool.reserved_bytes.filter(|&r| r >= pool.used.bytes);
        }
    }

    pub(super) fn subtract(&mut self, slot: u8, bytes: u64) {
        if let Some(pool) = self.list.get_mut(usize::from(slot)) {
            pool.used.subtract(bytes);
        }
    }

    /// Location of memory from the pool `handle`.
    pub(super) fn place_of(&self, handle: u64) -> AllocationPlace {
        let slot = self.slot_of(handle);
        slot.map_or(AllocationPlace::Unknown, |slot| {
            self.list[slot].location.place
        })
    }

    fn slot_of(&self, handle: u64) -> Option<usize> {
        let is_it = |p: &PoolAccount| p.handle == Some(handle) && !p.destroyed;
        self.list.iter().position(is_it)
    }

    fn find(&mut self, handle: u64) -> Option<&mut PoolAccount> {
        let slot = self.slot_of(handle)?;
        self.list.get_mut(slot)
    }

    fn current(&self, location: PoolLocation) -> Option<usize> {
        let is_it = |p: &PoolAccount| p.is_current && p.location == location;
        self.list.iter().position(is_it)
    }

    fn put_default(&mut self, handle: Option<u64>, location: PoolLocation) -> usize {
        self.put(PoolAccount {
            is_current: self.current(location).is_none(),
            is_default: true,
            ..PoolAccount::new(handle, location)
        })
    }

    /// Stores a pool in the slot of one that is gone, or in a new one. If there are too many, it has none: no
    /// pool with live allocations may be dropped.
    fn put(&mut self, pool: PoolAccount) -> usize {
        let gone = |p: &PoolAccount| p.destroyed && p.used.allocations == 0;
        if let Some(slot) = self.list.iter().position(gone) {
            self.list[slot] = pool;
            return slot;
        }
        if self.list.len() >= MAX_POOLS {
            return MAX_POOLS;
        }
        self.list.push(pool);
        self.list.len() - 1
    }
}

impl PoolAccount {
    fn new(handle: Option<u64>, location: PoolLocation) -> Self {
        Self {
            handle,
            used: Total::default(),
            reserved_bytes: None,
            location,
            is_current: false,
            is_default: false,
            destroyed: false,
        }
    }

    /// Device of the pool, if it is on a known device.
    pub fn device(&self) -> Option<u16> {
        match self.location.place {
            AllocationPlace::Device(device) => Some(device),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
