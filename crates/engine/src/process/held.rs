//! Queries on the memory that a process holds.

use gpuprobe_cuda::{AddressSpace, MemoryKind};

use super::Process;
use crate::Allocation;
use crate::live::{AllocationOrder, Holding};
use crate::physical::PhysicalAllocation;
use crate::pools::PoolAccount;
use crate::totals::Total;

/// Ages and kinds of the live allocations of a call site, computed without a scan of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// When the oldest was allocated, `CLOCK_MONOTONIC` nanoseconds.
    pub oldest_ns: u64,
    /// When the newest was allocated, `CLOCK_MONOTONIC` nanoseconds.
    pub newest_ns: u64,
    /// Kinds of the live allocations, in order.
    pub kinds: Vec<MemoryKind>,
}

impl Process {
    /// Whether the process has no live allocations.
    pub fn holds_nothing(&self) -> bool {
        self.held() == 0
    }

    /// Number of live allocations, and of live tensors in them.
    pub(crate) fn held(&self) -> usize {
        let tensors = self.tensors.iter().map(|a| a.blocks.live.len());
        self.live.len() + tensors.sum::<usize>()
    }

    /// Live allocations of the counted kinds, in no particular order.
    pub fn allocations(&self) -> impl Iterator<Item = &Allocation> {
        let counted = self.counted;
        self.live.iter().filter(move |a| counted.contains(a.kind()))
    }

    /// The first `count` live allocations of the counted kinds, in order, for each of
    /// [`Self::threads`]. The cost hardly depends on the number of further ones.
    pub fn first_by_thread(&self, count: usize, by: AllocationOrder) -> Vec<Vec<&Allocation>> {
        let mut by_thread = vec![Vec::new(); self.threads.len()];
        let mut holdings: Vec<_> = self.holdings().collect();
        holdings.sort_unstable_by_key(|holding| holding.key.thread);
        for of_thread in holdings.chunk_by(|a, b| a.key.thread == b.key.thread) {
            if let Some(first) = by_thread.get_mut(of_thread[0].key.thread as usize) {
                *first = self.live.store().first(of_thread, count, by);
            }
        }
        by_thread
    }

    /// Ages and kinds of live allocations of the counted kinds, for each of [`Self::sites`]; `None`
    /// where there are none.
    pub fn spans_by_site(&self) -> Vec<Option<Span>> {
        let mut by_site = vec![None; self.sites.iter().len()];
        for holding in self.holdings() {
            let Some(span) = by_site.get_mut(holding.key.site as usize) else {
                continue;
            };
            let (oldest_ns, newest_ns) = self.live.store().times_ns(&holding);
            let span = span.get_or_insert(Span {
                oldest_ns,
                newest_ns,
                kinds: Vec::new(),
            });
            span.oldest_ns = span.oldest_ns.min(oldest_ns);
            span.newest_ns = span.newest_ns.max(newest_ns);
            if let Err(place) = span.kinds.binary_search(&holding.key.kind) {
                span.kinds.insert(place, holding.key.kind);
            }
        }
        by_site
    }

    fn holdings(&self) -> impl Iterator<Item = Holding> {
        let counted = self.counted;
        let holdings = self.live.store().holdings();
        holdings.filter(move |holding| counted.contains(holding.key.kind))
    }

    /// The physical memory behind `allocation`, if it is of that kind.
    pub fn physical_of(&self, allocation: &Allocation) -> Option<&PhysicalAllocation> {
        match allocation.space() {
            AddressSpace::Physical => self.physical.get(allocation.address),
            _ => None,
        }
    }

    /// Name of the device variable in `allocation`, if it is one.
    pub fn name_of(&self, allocation: &Allocation) -> Option<&str> {
        match allocation.space() {
            AddressSpace::Variables => self.variables.get(&allocation.address)?.name.as_deref(),
            _ => None,
        }
    }

    /// The pool of `allocation`, if it is from a pool.
    pub fn pool_of(&self, allocation: &Allocation) -> Option<&PoolAccount> {
        match allocation.kind() {
            MemoryKind::Async => self.pools.get(allocation.slot()),
            _ => None,
        }
    }

    /// Number of loaded modules and libraries.
    pub fn modules(&self) -> usize {
        self.modules.len()
    }

    /// Live GPU memory by device; memory on an unknown device counts for the only one, if there is
    /// only one.
    pub fn devices(&self) -> Vec<(Option<u16>, Total)> {
        let single = self.only_device();
        let mut devices: Vec<(Option<u16>, Total)> = Vec::new();
        for (device, total) in self.totals.devices() {
            let device = device.or(single);
            match devices.iter_mut().find(|(d, _)| *d == device) {
                Some((_, sum)) => sum.merge(total),
                None => devices.push((device, total)),
            }
        }
        devices.sort_by_key(|(device, _)| device.unwrap_or(u16::MAX));
        devices
    }

    /// The same by device and memory kind.
    pub fn device_kinds(&self) -> Vec<(Option<u16>, MemoryKind, Total)> {
        let single = self.only_device();
        let mut all: Vec<(Option<u16>, MemoryKind, Total)> = Vec::new();
        for (device, kind, total) in self.totals.device_kinds() {
            let device = device.or(single);
            match all.iter_mut().find(|(d, k, _)| (*d, *k) == (device, kind)) {
                Some((.., sum)) => sum.merge(total),
                None => all.push((device, kind, total)),
            }
        }
        all.sort_by_key(|(device, kind, _)| (device.unwrap_or(u16::MAX), *kind));
        all
    }

    /// The device index, if the process can see one GPU only.
    pub(crate) fn only_device(&self) -> Option<u16> {
        self.identity.single_gpu.then_some(0)
    }

    /// Device of `allocation`, as the call gave it, else 0 if the process sees one GPU only.
    pub fn device(&self, allocation: &Allocation) -> Option<u16> {
        allocation.device().or(self.only_device())
    }
}
