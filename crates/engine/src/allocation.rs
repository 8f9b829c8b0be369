//! A live allocation, packed into 40 bytes.

use gpuprobe_cuda::{AddressSpace, Belongs, MemoryKind};

/// A live allocation. 40 bytes, as millions of them are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Device address, host address or handle, depending on the kind; of physical memory, a number
    /// that gpuprobe assigns.
    pub address: u64,
    /// Bytes requested, or computed from the parameters of the call.
    pub size_bytes: u64,
    /// When the allocating call returned, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Thread id of the allocating thread, above the slot.
    owner: u32,
    /// Number of the call site within its process, in [`super::Sites`].
    pub site: u32,
    /// Index of the allocating function in the function table.
    pub row: u16,
    kind: MemoryKind,
    space: AddressSpace,
    device: u8,
    /// Number of the context that the memory was allocated in, if the program created that context
    /// and it is on the allocation's device; else 0. Of a framework's block, what `tensors` says.
    pub context: u16,
}

/// The fields of an allocation before packing.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewAllocation {
    pub(super) address: u64,
    pub(super) size_bytes: u64,
    pub(super) end_ns: u64,
    pub(super) tid: u32,
    pub(super) row: u16,
    pub(super) site: u32,
    pub(super) kind: MemoryKind,
    pub(super) space: AddressSpace,
    pub(super) place: AllocationPlace,
    /// Slot of the context or pool that the memory belongs to.
    pub(super) slot: u8,
}

/// Where memory is allocated: on a device or on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllocationPlace {
    /// GPU memory on this device, as CUDA numbers it in the process.
    Device(u16),
    /// Host memory, although its kind is usually GPU memory.
    Host,
    /// GPU memory on an unknown device.
    Unknown,
    /// Neither, as far as is known: a type of location that gpuprobe doesn't know.
    Elsewhere,
}

impl From<Option<u16>> for AllocationPlace {
    fn from(device: Option<u16>) -> Self {
        device.map_or(Self::Unknown, Self::Device)
    }
}

const ELSEWHERE: u8 = 253;
const HOST: u8 = 254;
const NO_DEVICE: u8 = 255;
/// Thread ids are less (`PID_MAX_LIMIT`); others share this one.
const MAX_TID: u32 = (1 << 24) - 1;

impl Allocation {
    pub(super) fn new(new: &NewAllocation) -> Self {
        Self {
            address: new.address,
            size_bytes: new.size_bytes,
            end_ns: new.end_ns,
            owner: new.tid.min(MAX_TID) << 8 | u32::from(new.slot),
            row: new.row,
            site: new.site,
            kind: match new.place {
                AllocationPlace::Elsewhere => MemoryKind::Unknown,
                _ => new.kind,
            },
            space: new.space,
            device: match new.place {
                AllocationPlace::Device(device) => u8::try_from(device).unwrap_or(NO_DEVICE),
                AllocationPlace::Elsewhere => ELSEWHERE,
                AllocationPlace::Host => HOST,
                AllocationPlace::Unknown => NO_DEVICE,
            },
            context: 0,
        }
    }

    /// Kind of memory, as the allocating function implies.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Address space of [`Self::address`].
    pub fn space(&self) -> AddressSpace {
        self.space
    }

    /// The sum (GPU, host, imported) that the allocation is counted in.
    pub fn belongs(&self) -> Belongs {
        match self.kind.belongs() {
            Belongs::Gpu if self.device == HOST => Belongs::Host,
            Belongs::Gpu if self.device == ELSEWHERE => Belongs::Elsewhere,
            other => other,
        }
    }

    /// Device index, if known.
    pub fn device(&self) -> Option<u16> {
        (self.device < ELSEWHERE).then_some(u16::from(self.device))
    }

    /// Index of the GPU that the memory is on, if that is known; `None` of memory on the host, or with
    /// another owner.
    pub(super) fn gpu(&self) -> Option<Option<u16>> {
        (self.belongs() == Belongs::Gpu).then(|| self.device())
    }

    /// Thread id of the allocating thread.
    pub fn tid(&self) -> u32 {
        self.owner >> 8
    }

    pub(super) fn slot(&self) -> u8 {
        (self.owner & 0xff) as u8
    }

    /// Key that identifies the allocation among the live ones of its process.
    pub(super) fn key(&self) -> u64 {
        key(self.space(), self.address)
    }
}

/// Key of `address` in `space`. The upper bits are free: user addresses do not use them, and
/// handles are addresses or small numbers, as are the numbers that gpuprobe assigns.
pub(super) fn key(space: AddressSpace, address: u64) -> u64 {
    address ^ (space as u64) << 60
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_takes_40_bytes() {
        assert_eq!(size_of::<Allocation>(), 40);
    }

    #[test]
    fn packed_fields_round_trip() {
        for kind in MemoryKind::ALL {
            let space = kind.space();
            for (place, device) in [
                (AllocationPlace::Device(7), Some(7)),
                (AllocationPlace::Host, None),
                (AllocationPlace::Unknown, None),
            ] {
                let mut packed = Allocation::new(&NewAllocation {
                    address: 0x7f00_0000_1000,
                    size_bytes: u64::MAX,
                    end_ns: 5,
                    tid: 70_000,
                    row: 300,
                    site: 1 << 31,
                    kind,
                    space,
                    place,
                    slot: 254,
                });
                packed.context = 65_000;
                assert_eq!((packed.kind(), packed.space()), (kind, space));
                assert_eq!((packed.tid(), packed.slot()), (70_000, 254));
                assert_eq!((packed.device(), packed.row), (device, 300));
                assert_eq!(packed.context, 65_000);
                assert_eq!(packed.site, 1 << 31);
                let host = place == AllocationPlace::Host && kind.belongs() == Belongs::Gpu;
                assert_eq!(
                    packed.belongs(),
                    if host { Belongs::Host } else { kind.belongs() }
                );
            }
        }
    }
}
