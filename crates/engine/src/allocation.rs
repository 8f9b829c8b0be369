//! One live allocation, packed.

use gpuprobe_cuda::{Belongs, MemoryKind, Space};

/// A live allocation. 40 bytes; millions of them are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Device address, host address, or handle, by its kind; of physical memory, our own number.
    pub address: u64,
    /// Bytes that were asked for, or computed.
    pub size_bytes: u64,
    /// When the allocating call returned, `CLOCK_MONOTONIC` nanoseconds.
    pub end_ns: u64,
    /// Index of the allocating thread within its process, above the slot.
    owner: u32,
    /// Number of the call site within its process, in [`super::Sites`].
    pub site: u32,
    /// Row of the allocating function.
    pub row: u16,
    kind_and_space: u8,
    device: u8,
    context: u16,
}

/// What is allocated, before it is packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct New {
    pub(super) address: u64,
    pub(super) size_bytes: u64,
    pub(super) end_ns: u64,
    pub(super) thread: u32,
    pub(super) row: u16,
    pub(super) site: u32,
    pub(super) kind: MemoryKind,
    pub(super) space: Space,
    pub(super) place: Place,
    /// What it ends with: the slot of its context, or of its pool.
    pub(super) slot: u8,
    /// As [`Allocation::context`].
    pub(super) context: u16,
}

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At this device, as CUDA numbers it in the process.
    Device(u16),
    /// At the host, although its kind is one of GPU memory.
    Host,
    /// At a device that is not known.
    Unknown,
}

impl From<Option<u16>> for Place {
    fn from(device: Option<u16>) -> Self {
        device.map_or(Self::Unknown, Self::Device)
    }
}

const HOST: u8 = 254;
const NO_DEVICE: u8 = 255;
/// Threads beyond share one entry: no system has that many.
const MAX_THREAD: u32 = (1 << 24) - 1;

const SPACES: [Space; 7] = [
    Space::Device,
    Space::Pinned,
    Space::Registered,
    Space::Arrays,
    Space::Physical,
    Space::Shared,
    Space::Variables,
];

impl Allocation {
    pub(super) fn new(new: &New) -> Self {
        Self {
            address: new.address,
            size_bytes: new.size_bytes,
            end_ns: new.end_ns,
            owner: new.thread.min(MAX_THREAD) << 8 | u32::from(new.slot),
            row: new.row,
            site: new.site,
            kind_and_space: new.kind as u8 | (new.space as u8) << 4,
            device: match new.place {
                Place::Device(device) => u8::try_from(device).unwrap_or(NO_DEVICE),
                Place::Host => HOST,
                Place::Unknown => NO_DEVICE,
            },
            context: new.context,
        }
    }

    /// The same, of another size.
    pub(super) fn with_size(self, size_bytes: u64) -> Self {
        Self { size_bytes, ..self }
    }

    /// The same, of a framework's block, in other words: its stream, and what it has beyond what was asked
    /// for, where memory from CUDA has its slot and its context.
    pub(super) fn with_request(self, stream: u8, more: u16) -> Self {
        Self {
            owner: self.owner & !0xff | u32::from(stream),
            context: more,
            ..self
        }
    }

    /// Kind of memory.
    pub fn kind(&self) -> MemoryKind {
        MemoryKind::ALL[usize::from(self.kind_and_space & 15) % MemoryKind::COUNT]
    }

    /// What [`Self::address`] is.
    pub fn space(&self) -> Space {
        SPACES[usize::from(self.kind_and_space >> 4) % SPACES.len()]
    }

    /// The sum that it belongs to.
    pub fn belongs(&self) -> Belongs {
        match self.kind().belongs() {
            Belongs::Gpu if self.device == HOST => Belongs::Host,
            other => other,
        }
    }

    /// Device index, if known.
    pub fn device(&self) -> Option<u16> {
        (self.device < HOST).then_some(u16::from(self.device))
    }

    /// Number of the context that it was made in, if that is one which the program has made, and is
    /// on the allocation's device; else 0.
    pub fn context(&self) -> u16 {
        self.context
    }

    pub(super) fn thread(&self) -> u32 {
        self.owner >> 8
    }

    pub(super) fn slot(&self) -> u8 {
        (self.owner & 0xff) as u8
    }

    /// Tells it apart from every other live allocation of its process.
    pub(super) fn key(&self) -> u64 {
        key(self.space(), self.address)
    }
}

/// The key of what is at `address` in `space`. User addresses leave the upper bits free; handles
/// and our own numbers are small or addresses too.
pub(super) fn key(space: Space, address: u64) -> u64 {
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
    fn what_is_packed_comes_out() {
        for (kind, space) in MemoryKind::ALL
            .into_iter()
            .flat_map(|k| SPACES.map(|s| (k, s)))
        {
            for (place, device) in [
                (Place::Device(7), Some(7)),
                (Place::Host, None),
                (Place::Unknown, None),
            ] {
                let packed = Allocation::new(&New {
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
                let host = place == Place::Host && kind.belongs() == Belongs::Gpu;
                assert_eq!(
                    packed.belongs(),
                    if host { Belongs::Host } else { kind.belongs() }
                );
            }
        }
    }
}
