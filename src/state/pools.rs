//! Pools of stream-ordered memory. What is allocated from a pool is used; what the pool holds from
//! the driver is reserved, is usually more, and is known only when the program asks for it.

use super::allocation::Place;
use super::totals::Total;

/// A pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its handle; `None` for the pool of a device that the program never asked for.
    pub handle: Option<u64>,
    /// What is allocated from it.
    pub used: Total,
    /// What it holds, as the driver last told the program; `None` if it never did, or if that can
    /// no longer be true.
    pub reserved_bytes: Option<u64>,
    pub(super) place: Place,
    /// It is the pool from which `cuMemAllocAsync` takes for its device.
    is_current: bool,
    is_default: bool,
    destroyed: bool,
}

/// Pools are numbered by a byte; those beyond share the last.
const MAX_POOLS: usize = 255;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED_CURRENT: u64 = 5;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const AT_DEVICE: u64 = 1;

/// The pools of one process.
#[derive(Debug, Default)]
pub struct Pools {
    list: Vec<Pool>,
}

/// Where `CUmemLocation` says that memory is, which has nothing to say in the calls of old.
pub(super) fn place(location_type: u64, device: Option<u16>) -> Place {
    match location_type {
        0 | AT_DEVICE => device.into(),
        _ => Place::Host,
    }
}

impl Pools {
    /// The pools that exist, or from which something is still allocated.
    pub fn iter(&self) -> impl Iterator<Item = &Pool> {
        let shown = |p: &&Pool| !p.destroyed || p.used.allocations > 0;
        self.list.iter().filter(shown)
    }

    /// The pool in `slot`.
    pub fn get(&self, slot: u8) -> Option<&Pool> {
        self.list.get(usize::from(slot))
    }

    pub(super) fn create(&mut self, handle: u64, place: Place) {
        let slot = self.vacant();
        self.put(slot, Pool::new(Some(handle), place));
    }

    pub(super) fn destroy(&mut self, handle: u64) {
        if let Some(pool) = self.find(handle) {
            pool.destroyed = true;
            pool.is_current = false;
            let place = pool.place;
            // The device goes back to its default pool.
            let default = |p: &&mut Pool| p.is_default && p.place == place;
            if let Some(pool) = self.list.iter_mut().find(default) {
                pool.is_current = true;
            }
        }
    }

    pub(super) fn trim(&mut self, handle: u64) {
        if let Some(pool) = self.find(handle) {
            pool.reserved_bytes = None;
        }
    }

    pub(super) fn attribute(&mut self, handle: u64, which: u64, value: u64, place: Place) {
        if which == RESERVED_CURRENT {
            let slot = self.slot(handle, place);
            self.list[usize::from(slot)].reserved_bytes = Some(value);
        }
    }

    /// The program was told that `handle` is a pool of the device.
    pub(super) fn learn(&mut self, handle: u64, place: Place) {
        if self.find(handle).is_some() {
            return;
        }
        let unnamed = |p: &&mut Pool| p.handle.is_none() && p.place == place;
        match self.list.iter_mut().find(unnamed) {
            Some(pool) => pool.handle = Some(handle),
            None => self.put_default(Some(handle), place),
        }
    }

    /// `handle` is the pool of the device from now on.
    pub(super) fn set_current(&mut self, handle: u64, place: Place) {
        let slot = usize::from(self.slot(handle, place));
        for (index, pool) in self.list.iter_mut().enumerate() {
            if pool.place == place {
                pool.is_current = index == slot;
            }
        }
    }

    /// The slot of the pool `handle`; of the device's pool if it is 0.
    pub(super) fn slot(&mut self, handle: u64, place: Place) -> u8 {
        let found = if handle == 0 {
            self.list
                .iter()
                .position(|p| p.is_current && p.place == place)
        } else {
            self.list
                .iter()
                .position(|p| p.handle == Some(handle) && !p.destroyed)
        };
        let slot = found.unwrap_or_else(|| {
            let slot = self.vacant();
            if handle == 0 {
                self.put_default(None, place);
            } else {
                self.put(slot, Pool::new(Some(handle), place));
            }
            slot
        });
        u8::try_from(slot).unwrap_or(u8::MAX)
    }

    pub(super) fn add(&mut self, slot: u8, bytes: u64) {
        if let Some(pool) = self.list.get_mut(usize::from(slot)) {
            pool.used.add(bytes);
            // What was reserved then is less than what is used now.
            pool.reserved_bytes = pool.reserved_bytes.filter(|&r| r >= pool.used.bytes);
        }
    }

    pub(super) fn subtract(&mut self, slot: u8, bytes: u64) {
        if let Some(pool) = self.list.get_mut(usize::from(slot)) {
            pool.used.subtract(bytes);
        }
    }

    fn find(&mut self, handle: u64) -> Option<&mut Pool> {
        let is_it = |p: &&mut Pool| p.handle == Some(handle) && !p.destroyed;
        self.list.iter_mut().find(is_it)
    }

    fn put_default(&mut self, handle: Option<u64>, place: Place) {
        let others = |p: &Pool| p.is_current && p.place == place;
        let pool = Pool {
            is_current: !self.list.iter().any(others),
            is_default: true,
            ..Pool::new(handle, place)
        };
        let slot = self.vacant();
        self.put(slot, pool);
    }

    fn put(&mut self, slot: usize, pool: Pool) {
        match self.list.get_mut(slot) {
            Some(place) => *place = pool,
            None => self.list.push(pool),
        }
    }

    /// The slot for another pool: of one that is gone, if there is one.
    fn vacant(&self) -> usize {
        let gone = |p: &Pool| p.destroyed && p.used.allocations == 0;
        let length = self.list.len().min(MAX_POOLS - 1);
        self.list.iter().position(gone).unwrap_or(length)
    }
}

impl Pool {
    fn new(handle: Option<u64>, place: Place) -> Self {
        Self {
            handle,
            used: Total::default(),
            reserved_bytes: None,
            place,
            is_current: false,
            is_default: false,
            destroyed: false,
        }
    }

    /// Its device, if it is at a known one.
    pub fn device(&self) -> Option<u16> {
        match self.place {
            Place::Device(device) => Some(device),
            Place::Host | Place::Unknown => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const GPU: Place = Place::Device(0);

    #[test]
    fn the_pool_of_a_device_is_found_however_it_is_named() {
        let mut pools = Pools::default();
        let default = pools.slot(0, GPU);
        pools.learn(0x10, GPU);
        assert_eq!(pools.slot(0x10, GPU), default);
        pools.create(0x20, GPU);
        pools.set_current(0x20, GPU);
        assert_ne!(pools.slot(0, GPU), default);
        assert_eq!(pools.slot(0, GPU), pools.slot(0x20, GPU));
        pools.destroy(0x20);
        assert_eq!(pools.slot(0, GPU), default);
        assert_ne!(pools.slot(0, Place::Device(1)), default);
    }

    #[test]
    fn used_and_reserved_are_different_numbers() {
        let mut pools = Pools::default();
        pools.create(0x20, GPU);
        let slot = pools.slot(0x20, GPU);
        pools.add(slot, 100);
        pools.attribute(0x20, 7, 100, GPU);
        assert_eq!(pools.get(slot).unwrap().reserved_bytes, None);
        pools.attribute(0x20, 5, 128, GPU);
        pools.subtract(slot, 60);
        let pool = pools.get(slot).unwrap();
        assert_eq!((pool.used.bytes, pool.reserved_bytes), (40, Some(128)));
        pools.add(slot, 200);
        assert_eq!(pools.get(slot).unwrap().reserved_bytes, None);
        pools.attribute(0x20, 5, 256, GPU);
        pools.trim(0x20);
        assert_eq!(pools.get(slot).unwrap().reserved_bytes, None);
    }

    #[test]
    fn a_destroyed_pool_is_shown_while_something_is_allocated_from_it() {
        let mut pools = Pools::default();
        pools.create(0x20, GPU);
        let slot = pools.slot(0x20, GPU);
        pools.add(slot, 100);
        pools.destroy(0x20);
        assert_eq!(pools.iter().count(), 1);
        // The handle may be used again meanwhile.
        pools.create(0x20, GPU);
        assert_ne!(pools.slot(0x20, GPU), slot);
        pools.subtract(slot, 100);
        assert_eq!(pools.iter().count(), 1);
    }

    #[test]
    fn thousands_of_pools_do_no_harm() {
        let mut pools = Pools::default();
        for handle in 1..2000 {
            pools.create(handle, GPU);
            let slot = pools.slot(handle, GPU);
            pools.add(slot, 1);
        }
        assert!(pools.list.len() <= 255);
    }
}
