//! The direction of a copy.

use super::super::addresses::AddressKind;
use super::super::ledger::Ledger;
use gpuprobe_cuda::{CopyDirectionSource, Direction};
use gpuprobe_model::event::Copy;

/// Source and destination of a copy, with what locates them.
pub(super) struct CopyEndpoints<'a, P> {
    pub(super) copy: &'a Copy,
    pub(super) ledger: &'a Ledger,
    pub(super) place: P,
}

impl<P: Fn(u32, u64) -> Option<AddressKind>> CopyEndpoints<'_, P> {
    /// Location of `address`, if known.
    fn find(&self, address: u64) -> Option<AddressKind> {
        let known = self.known(address);
        known.or_else(|| (self.place)(self.copy.pid, address))
    }

    pub(super) fn known(&self, address: u64) -> Option<AddressKind> {
        let Copy { pid, start_ns, .. } = *self.copy;
        self.ledger.find_address(pid, address, start_ns)
    }

    /// Device of the memory at `address`, if it is in a known allocation.
    pub(super) fn device(&self, address: u64) -> Option<u16> {
        match self.known(address) {
            Some(AddressKind::Device(device)) => device,
            Some(AddressKind::Host) | None => None,
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
        };
        match (told, self.device(source), self.device(destination)) {
            (Direction::DeviceToDevice, Some(from), Some(to)) if from != to => {
                Direction::PeerToPeer
            }
            (told, ..) => told,
        }
    }

    /// By `CUmemorytype`: 1 host, 2 device, 3 array, 4 unified, for which the addresses decide.
    fn by_types(&self) -> Direction {
        const ARRAY: u16 = 3;
        let place = |kind: u16, address| match kind {
            1 => Some(AddressKind::Host),
            2 => Some(AddressKind::Device(None)),
            4 => self.find(address),
            _ => None,
        };
        let source_type = u16::try_from(self.copy.kind).unwrap_or(0);
        let destination_type = self.copy.destination_type;
        let source = place(source_type, self.copy.source);
        let destination = place(destination_type, self.copy.destination);
        match (source_type == ARRAY, destination_type == ARRAY) {
            (true, true) => Direction::ArrayToArray,
            (true, false) => match destination {
                Some(AddressKind::Host) => Direction::ArrayToHost,
                Some(AddressKind::Device(_)) => Direction::ArrayToDevice,
                None => Direction::Unknown,
            },
            (false, true) => match source {
                Some(AddressKind::Host) => Direction::HostToArray,
                Some(AddressKind::Device(_)) => Direction::DeviceToArray,
                None => Direction::Unknown,
            },
            (false, false) => between(source, destination),
        }
    }
}

pub(super) fn between(source: Option<AddressKind>, destination: Option<AddressKind>) -> Direction {
    use AddressKind::{Device, Host};
    match (source, destination) {
        (Some(Host), Some(Host)) => Direction::HostToHost,
        (Some(Host), Some(Device(_))) => Direction::HostToDevice,
        (Some(Device(_)), Some(Host)) => Direction::DeviceToHost,
        (Some(Device(_)), Some(Device(_))) => Direction::DeviceToDevice,
        (None, _) | (_, None) => Direction::Unknown,
    }
}
