//! Sums of live memory.

use super::Allocation;
use gpuprobe_cuda::{Belongs, KindSet, MemoryKind};

/// Live memory of some sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub allocations: u64,
}

impl Total {
    /// A traced process chooses the sizes, so the sum may not fit.
    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.allocations += 1;
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.allocations += other.allocations;
    }

    pub(super) fn subtract(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.allocations = self.allocations.saturating_sub(1);
    }
}

/// The three sums that are never mixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Memory of GPUs.
    pub gpu: Total,
    /// Memory of the host.
    pub host: Total,
    /// Memory that another process or API has.
    pub imported: Total,
}

impl Sums {
    fn of(&mut self, belongs: Belongs) -> &mut Total {
        match belongs {
            Belongs::Gpu => &mut self.gpu,
            Belongs::Host => &mut self.host,
            Belongs::Elsewhere => &mut self.imported,
        }
    }

    /// Adds an allocation to the sum that it belongs to.
    pub fn add(&mut self, allocation: &Allocation) {
        self.of(allocation.belongs()).add(allocation.size_bytes);
    }

    /// Adds other sums.
    pub fn merge(&mut self, other: Self) {
        self.gpu.merge(other.gpu);
        self.host.merge(other.host);
        self.imported.merge(other.imported);
    }

    pub(super) fn subtract(&mut self, allocation: &Allocation) {
        self.of(allocation.belongs())
            .subtract(allocation.size_bytes);
    }

    /// All three, which is good to sort by, not to be shown.
    pub fn all(&self) -> Total {
        let mut all = self.gpu;
        all.merge(self.host);
        all.merge(self.imported);
        all
    }

    /// Whether nothing is live.
    pub fn is_empty(&self) -> bool {
        self.gpu.allocations + self.host.allocations + self.imported.allocations == 0
    }
}

/// The sums of a process, also by kind and by device.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The three sums.
    pub sums: Sums,
    kinds: [Total; MemoryKind::COUNT],
    /// GPU memory by device; few.
    devices: Vec<(Option<u16>, Total)>,
}

impl Totals {
    /// Live memory by kind, of those kinds that are live.
    pub fn kinds(&self) -> impl Iterator<Item = (MemoryKind, Total)> {
        let kinds = MemoryKind::ALL.into_iter().zip(self.kinds);
        kinds.filter(|(_, total)| total.allocations > 0)
    }

    /// Live GPU memory by device, of those that have any.
    pub fn devices(&self) -> impl Iterator<Item = (Option<u16>, Total)> {
        let devices = self.devices.iter().copied();
        devices.filter(|(_, total)| total.allocations > 0)
    }

    pub(super) fn add(&mut self, allocation: &Allocation, counted: KindSet) {
        if !counted.contains(allocation.kind()) {
            return;
        }
        self.sums.add(allocation);
        self.kinds[allocation.kind() as usize].add(allocation.size_bytes);
        if allocation.belongs() == Belongs::Gpu {
            self.device(allocation.device()).add(allocation.size_bytes);
        }
    }

    pub(super) fn subtract(&mut self, allocation: &Allocation, counted: KindSet) {
        if !counted.contains(allocation.kind()) {
            return;
        }
        self.sums.subtract(allocation);
        self.kinds[allocation.kind() as usize].subtract(allocation.size_bytes);
        if allocation.belongs() == Belongs::Gpu {
            let device = self.device(allocation.device());
            device.subtract(allocation.size_bytes);
        }
    }

    fn device(&mut self, device: Option<u16>) -> &mut Total {
        let known = self.devices.iter().position(|(d, _)| *d == device);
        let index = known.unwrap_or_else(|| {
            self.devices.push((device, Total::default()));
            self.devices.len() - 1
        });
        &mut self.devices[index].1
    }
}
