//! The direction of a copy.

use super::super::addresses::AddressKind;
use super::super::ledger::Ledger;
use gpuprobe_cuda::{Belongs, CopyDirectionSource, Direction, MemoryKind};
use gpuprobe_model::event::Copy;

/// `CU_DEVICE_CPU`.
const CPU: i32 = -1;

/// What a copy goes from or to.
#[derive(Clone, Copy)]
enum Place {
    Host,
    Device,
    Array,
}

/// Source and destination of a copy, with what locates them.
pub(super) struct CopyEndpoints<'a, P> {
    pub(super) copy: &'a Copy,
    pub(super) ledger: &'a Ledger,
    pub(super) place: P,
}

impl<P: Fn(u32, u64) -> Option<AddressKind>> CopyEndpoints<'_, P> {
    /// Location of `address`, if known.
    fn find(&self, address: u64) -> Option<Place> {
        let known = self.known(address);
        let found = known.or_else(|| (self.place)(self.copy.pid, address));
        found.map(|found| match found {
            AddressKind::Host => Place::Host,
            AddressKind::Device(_) => Place::Device,
        })
    }

    fn known(&self, address: u64) -> Option<AddressKind> {
        let Copy { pid, start_ns, .. } = *self.copy;
        self.ledger.find_address(pid, address, start_ns)
    }

    /// Device of the memory at `address`, if it is in a known allocation.
    fn device(&self, address: u64) -> Option<u16> {
        match self.known(address) {
            Some(AddressKind::Device(device)) => device,
            Some(AddressKind::Host) | None => None,
        }
    }

    /// Whether the host's side of a copy is pinned or pageable; `None` if that is not known, as of memory
    /// from before the process was traced.
    pub(super) fn host_memory(&self, direction: Direction, from_birth: bool) -> Option<MemoryKind> {
        let address = match direction {
            Direction::HostToDevice | Direction::HostToArray => self.copy.source,
            Direction::DeviceToHost | Direction::ArrayToHost => self.copy.destination,
            _ => return None,
        };
        match self.known(address) {
            Some(AddressKind::Host) => Some(MemoryKind::Pinned),
            None if from_birth => Some(MemoryKind::Pageable),
            _ => None,
        }
    }

    pub(super) fn direction(&self) -> Direction {
        let Copy {
            source,
            destination,
            kind,
            ..
        } = *self.copy;
        let by_addresses = || between(self.find(source), self.find(destination));
        let told = match self.copy.function.direction {
            CopyDirectionSource::Always(direction) => direction,
            CopyDirectionSource::ByAddresses => by_addresses(),
            // cudaMemcpyKind
            CopyDirectionSource::ByKind => match kind {
                0 => Direction::HostToHost,
                1 => Direction::HostToDevice,
                2 => Direction::DeviceToHost,
                3 => Direction::DeviceToDevice,
                4 => by_addresses(),
                _ => Direction::Unknown,
            },
            CopyDirectionSource::ByTypes => self.by_types(),
            CopyDirectionSource::ByDevice => match kind {
                CPU => Direction::PrefetchToHost,
                0.. => Direction::PrefetchToDevice,
                _ => Direction::Unknown,
            },
            CopyDirectionSource::ByLocation => match Belongs::at(kind.cast_unsigned()) {
                Some(Belongs::Gpu) => Direction::PrefetchToDevice,
                Some(Belongs::Host) => Direction::PrefetchToHost,
                _ => Direction::Unknown,
            },
        };
        let is_between = || {
            let ends = self.device(source).zip(self.device(destination));
            ends.is_some_and(|(from, to)| from != to)
        };
        match told {
            Direction::DeviceToDevice if is_between() => Direction::PeerToPeer,
            told => told,
        }
    }

    /// By `CUmemorytype`: 1 host, 2 device, 3 array, 4 unified, for which the addresses decide.
    fn by_types(&self) -> Direction {
        let place = |kind: u16, address| match kind {
            1 => Some(Place::Host),
            2 => Some(Place::Device),
            3 => Some(Place::Array),
            4 => self.find(address),
            _ => None,
        };
        let source_type = u16::try_from(self.copy.kind).unwrap_or(0);
        let source = place(source_type, self.copy.source);
        between(
            source,
            place(self.copy.destination_type, self.copy.destination),
        )
    }
}

fn between(source: Option<Place>, destination: Option<Place>) -> Direction {
    use Place::{Array, Device, Host};
    match (source, destination) {
        (Some(Host), Some(Host)) => Direction::HostToHost,
        (Some(Host), Some(Device)) => Direction::HostToDevice,
        (Some(Host), Some(Array)) => Direction::HostToArray,
        (Some(Device), Some(Host)) => Direction::DeviceToHost,
        (Some(Device), Some(Device)) => Direction::DeviceToDevice,
        (Some(Device), Some(Array)) => Direction::DeviceToArray,
        (Some(Array), Some(Host)) => Direction::ArrayToHost,
        (Some(Array), Some(Device)) => Direction::ArrayToDevice,
        (Some(Array), Some(Array)) => Direction::ArrayToArray,
        (None, _) | (_, None) => Direction::Unknown,
    }
}
