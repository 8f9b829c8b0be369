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
    /// Index of the allocating thread within its process, above the slot.
    owner: u32,
    /// Number of the call site within its process, in [`super::Sites`].
    pub site: u32,
    /// Index of the allocating function in the function table.
    pub row: u16,
    kind_and_space: u8,
    device: u8,
    context: u16,
}

/// The fields of an allocation before packing.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewAllocation {
    pub(super) address: u64,
    pub(super) size_bytes: u64,
    pub(super) end_ns: u64,
    pub(super) thread: u32,
    pub(super) row: u16,
    pub(super) site: u32,
    pub(super) kind: MemoryKind,
    pub(super) space: AddressSpace,
    pub(super) place: AllocationPlace,
    /// Slot of the context or pool that the memory belongs to.
    pub(super) slot: u8,
    /// Context number; see [`Allocation::context`].
    pub(super) context: u16,
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
}

/// The GPU that memory is on, or that it is on none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryPlace(u8);

impl MemoryPlace {
    /// Index of the GPU, if that is known; `None` of memory on the host, or with another owner.
    pub(super) fn gpu(self) -> Option<Option<u16>> {
        (self.0 != HOST).then(|| (self.0 < HOST).then_some(u16::from(self.0)))
    }
}

impl From<Option<u16>> for AllocationPlace {
    fn from(device: Option<u16>) -> Self {
        device.map_or(Self::Unknown, Self::Device)
    }
}

const HOST: u8 = 254;
const NO_DEVICE: u8 = 255;
/// Threads with a higher index share this one: no system has that many.
const MAX_THREAD: u32 = (1 << 24) - 1;

const SPACES: [AddressSpace; 7] = [
    AddressSpace::Device,
    AddressSpace::Pinned,
    AddressSpace::Registered,
    AddressSpace::Arrays,
    AddressSpace::Physical,
    AddressSpace::Shared,
    AddressSpace::Variables,
];

/// As many as four bits can name: a lookup needs no check. Those beyond `all` are its first.
const fn by_four_bits<T: Copy, const N: usize>(all: [T; N]) -> [T; 16] {
    let mut table = [all[0]; 16];
    let mut number = 0;
    while number < N {
        table[number] = all[number];
        number += 1;
    }
    table
}

static KIND_OF: [MemoryKind; 16] = by_four_bits(MemoryKind::ALL);
static SPACE_OF: [AddressSpace; 16] = by_four_bits(SPACES);
/// Of the kinds. An event needs it in several places.
static BELONGS_OF: [Belongs; 16] = {
    let mut table = [Belongs::Gpu; 16];
    let mut number = 0;
    while number < MemoryKind::COUNT {
        table[number] = MemoryKind::ALL[number].belongs();
        number += 1;
    }
    table
};

impl Allocation {
    pub(super) fn new(new: &NewAllocation) -> Self {
        Self {
            address: new.address,
            size_bytes: new.size_bytes,
            end_ns: new.end_ns,
            owner: new.thread.min(MAX_THREAD) << 8 | u32::from(new.slot),
            row: new.row,
            site: new.site,
            kind_and_space: new.kind as u8 | (new.space as u8) << 4,
            device: match new.place {
                AllocationPlace::Device(device) => u8::try_from(device).unwrap_or(NO_DEVICE),
                AllocationPlace::Host => HOST,
                AllocationPlace::Unknown => NO_DEVICE,
            },
            context: new.context,
        }
    }

    /// A copy with another size.
    pub(super) fn with_size(self, size_bytes: u64) -> Self {
        Self { size_bytes, ..self }
    }

    /// A copy for a framework's block: `stream` and the bytes beyond the requested size replace the
    /// slot and the context number that memory from CUDA has in these fields.
    pub(super) fn with_request(self, stream: u8, more: u16) -> Self {
        Self {
            owner: self.owner & !0xff | u32::from(stream),
            context: more,
            ..self
        }
    }

    /// Kind of memory, as the allocating function implies.
    pub fn kind(&self) -> MemoryKind {
        KIND_OF[usize::from(self.kind_and_space & 15)]
    }

    /// Address space of [`Self::address`].
    pub fn space(&self) -> AddressSpace {
        SPACE_OF[usize::from(self.kind_and_space >> 4)]
    }

    /// The sum (GPU, host, imported) that the allocation is counted in.
    pub fn belongs(&self) -> Belongs {
        match BELONGS_OF[usize::from(self.kind_and_space & 15)] {
            Belongs::Gpu if self.device == HOST => Belongs::Host,
            other => other,
        }
    }

    /// Device index, if known.
    pub fn device(&self) -> Option<u16> {
        (self.device < HOST).then_some(u16::from(self.device))
    }

    /// Where the memory is.
    pub(super) fn place(&self) -> MemoryPlace {
        MemoryPlace(match self.belongs() {
            Belongs::Gpu => self.device,
            Belongs::Host | Belongs::Elsewhere => HOST,
        })
    }

    /// Number of the context that the memory was allocated in, if the program created that context
    /// and it is on the allocation's device; else 0.
    pub fn context(&self) -> u16 {
        self.context
    }

    pub(super) fn thread(&self) -> u32 {
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
        for (kind, space) in MemoryKind::ALL
            .into_iter()
            .flat_map(|k| SPACES.map(|s| (k, s)))
        {
            for (place, device) in [
                (AllocationPlace::Device(7), Some(7)),
                (AllocationPlace::Host, None),
                (AllocationPlace::Unknown, None),
            ] {
                let packed = Allocation::new(&NewAllocation {
                    address: 0x7f00_0000_1000,
                    size_bytes: u64::MAX,
                    end_ns: 5,
                    thread: 70_000,
                    row: 300,
                    site: 1 << 31,
                    kind,
                    space,
                    place,
                    slot: 254,
                    context: 65_000,
                });
                assert_eq!((packed.kind(), packed.space()), (kind, space));
                assert_eq!((packed.thread(), packed.slot()), (70_000, 254));
                assert_eq!((packed.device(), packed.row), (device, 300));
                assert_eq!(packed.context(), 65_000);
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
