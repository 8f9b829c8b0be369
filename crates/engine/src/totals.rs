//! Sums of live memory.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::Allocation;
use gpuprobe_cuda::{Belongs, MemoryKind};

pub use gpuprobe_model::Total;

/// Sums of live memory, which are never added up for display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySums {
    /// Memory on devices, including arrays and pools.
    pub gpu: Total,
    /// Memory on the host.
    pub host: Total,
    /// Memory owned by another process or API.
    pub imported: Total,
}

impl MemorySums {
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

    /// Adds the sums of `other`.
    pub fn merge(&mut self, other: Self) {
        self.gpu.merge(other.gpu);
        self.host.merge(other.host);
        self.imported.merge(other.imported);
    }

    pub(super) fn subtract(&mut self, allocation: &Allocation) {
        self.of(allocation.belongs())
            .subtract(allocation.size_bytes);
    }

    /// All three sums together, used for sorting only.
    pub fn all(&self) -> Total {
        let mut all = self.gpu;
        all.merge(self.host);
        all.merge(self.imported);
        all
    }

    /// Whether no memory is live.
    pub fn is_empty(&self) -> bool {
        self.gpu.allocations + self.host.allocations + self.imported.allocations == 0
    }
}

/// Numbers of values by size: slot n counts values of 2^(n-1) to 2^n - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeCounts(pub(crate) [u64; 65]);

impl Serialize for SizeCounts {
    /// `[limit, count]` of the slots in which something is: values below `limit` and at least half of it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let slots = (0..).zip(&self.0).filter(|(_, count)| **count > 0);
        let limit = |slot| 1u64.checked_shl(slot).unwrap_or(u64::MAX);
        serializer.collect_seq(slots.map(|(slot, count)| (limit(slot), count)))
    }
}

impl Default for SizeCounts {
    fn default() -> Self {
        Self([0; 65])
    }
}

impl SizeCounts {
    pub(super) fn add(&mut self, value: u64) {
        self.0[64 - value.leading_zeros() as usize] += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(count);
        }
    }
}

/// Sums of a process, also by kind and by device.
#[derive(Clone, Debug, Default)]
pub struct ProcessTotals {
    /// GPU, host and imported memory.
    pub sums: MemorySums,
    /// By [`Allocation::gpu`], of which there are few, and kind.
    places: Vec<(Option<Option<u16>>, [Total; MemoryKind::COUNT])>,
}

impl ProcessTotals {
    /// Live memory by kind, without kinds that have none.
    pub fn kinds(&self) -> impl Iterator<Item = (MemoryKind, Total)> + use<> {
        let mut sums: BTreeMap<_, Total> = BTreeMap::new();
        for (_, kind, total) in self.parts() {
            sums.entry(kind).or_default().merge(total);
        }
        sums.into_iter()
    }

    /// Live GPU memory by device and kind, without those that have none.
    pub(super) fn device_kinds(&self) -> impl Iterator<Item = (Option<u16>, MemoryKind, Total)> {
        let parts = self.parts();
        parts.filter_map(|(gpu, kind, total)| Some((gpu?, kind, total)))
    }

    fn parts(&self) -> impl Iterator<Item = (Option<Option<u16>>, MemoryKind, Total)> {
        let all = self.places.iter().flat_map(|(gpu, kinds)| {
            let kinds = MemoryKind::ALL.into_iter().zip(kinds);
            kinds.map(|(kind, total)| (*gpu, kind, *total))
        });
        all.filter(|(_, _, total)| total.allocations > 0)
    }

    pub(super) fn add(&mut self, allocation: &Allocation) {
        self.sums.add(allocation);
        self.of(allocation).add(allocation.size_bytes);
    }

    pub(super) fn subtract(&mut self, allocation: &Allocation) {
        self.sums.subtract(allocation);
        self.of(allocation).subtract(allocation.size_bytes);
    }

    /// Takes the GPU memory out of all sums.
    pub(super) fn take_gpu(&mut self) -> Self {
        let gpu = std::mem::take(&mut self.sums.gpu);
        Self {
            sums: MemorySums {
                gpu,
                ..MemorySums::default()
            },
            places: self
                .places
                .extract_if(.., |(gpu, _)| gpu.is_some())
                .collect(),
        }
    }

    /// Puts back what was taken; none was added since.
    pub(super) fn put_back(&mut self, gpu: Self) {
        self.sums.merge(gpu.sums);
        self.places.extend(gpu.places);
    }

    /// The sum of the same place and kind.
    fn of(&mut self, allocation: &Allocation) -> &mut Total {
        let place = allocation.gpu();
        let known = self.places.iter().position(|(of, _)| *of == place);
        let index = known.unwrap_or_else(|| {
            self.places.push((place, Default::default()));
            self.places.len() - 1
        });
        &mut self.places[index].1[allocation.kind() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::{AllocationPlace, NewAllocation};

    fn allocation(kind: MemoryKind, size_bytes: u64, device: Option<u16>) -> Allocation {
        Allocation::new(&NewAllocation {
            address: 0x1000,
            size_bytes,
            end_ns: 0,
            tid: 0,
            row: 0,
            site: 0,
            kind,
            space: kind.space(),
            place: AllocationPlace::from(device),
            slot: 0,
        })
    }

    #[test]
    fn sums_are_empty_without_allocations_of_any_sort() {
        let kinds = [MemoryKind::Device, MemoryKind::Pinned, MemoryKind::Imported];
        assert!(MemorySums::default().is_empty());
        for kind in kinds {
            let mut sums = MemorySums::default();
            sums.add(&allocation(kind, 0, None));
            assert!(!sums.is_empty(), "{kind}");
            let mut both = sums;
            both.merge(sums);
            assert_eq!(both.all().allocations, 2);
            sums.subtract(&allocation(kind, 0, None));
            assert!(sums.is_empty(), "{kind}");
        }
        let mut sums = MemorySums::default();
        let each = kinds.map(|kind| allocation(kind, 10, None));
        each.iter().for_each(|one| sums.add(one));
        assert_eq!(
            (sums.is_empty(), sums.all().bytes, sums.all().allocations),
            (false, 30, 3)
        );
    }

    #[test]
    fn gpu_memory_is_summed_up_by_device_and_kind() {
        let all = [
            allocation(MemoryKind::Device, 1, Some(1)),
            allocation(MemoryKind::Managed, 20, Some(1)),
            allocation(MemoryKind::Device, 300, None),
            allocation(MemoryKind::Pinned, 4000, Some(1)),
            allocation(MemoryKind::Imported, 50_000, Some(1)),
        ];
        let mut totals = ProcessTotals::default();
        all.iter().for_each(|one| totals.add(one));
        let kinds: Vec<_> = totals
            .device_kinds()
            .map(|(at, kind, t)| (at, kind, t.bytes))
            .collect();
        let expected = [
            (Some(1), MemoryKind::Device, 1),
            (Some(1), MemoryKind::Managed, 20),
            (None, MemoryKind::Device, 300),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(
            totals.kinds().map(|(_, total)| total.bytes).sum::<u64>(),
            54_321
        );
        all[..3].iter().for_each(|one| totals.subtract(one));
        assert_eq!(totals.device_kinds().count(), 0);
        assert_eq!(
            (totals.kinds().count(), totals.sums.gpu),
            (2, Total::default())
        );
    }
}
