//! Questions about the memory that a process holds.

use gpuprobe_cuda::{MemoryKind, Space};

use super::Process;
use crate::Allocation;
use crate::live::{By, Holding};
use crate::physical::Physical;
use crate::pools::Pool;
use crate::totals::Total;

/// Ages and kinds of the live allocations of a call site, found without looking at each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// When the oldest was allocated, `CLOCK_MONOTONIC` nanoseconds.
    pub oldest_ns: u64,
    /// When the newest was.
    pub newest_ns: u64,
    /// Their kinds, in order.
    pub kinds: Vec<MemoryKind>,
}

impl Process {
    /// Whether it holds nothing at all.
    pub fn holds_nothing(&self) -> bool {
        self.held() == 0
    }

    /// Number of live allocations, and of what allocators of frameworks have handed out of these.
    pub(crate) fn held(&self) -> usize {
        let tensors = self.tensors.iter().map(|a| a.blocks.live.len());
        self.live.len() + tensors.sum::<usize>()
    }

    /// The live allocations of the kinds that are counted, in no particular order.
    pub fn allocations(&self) -> impl Iterator<Item = &Allocation> {
        let counted = self.counted;
        self.live.iter().filter(move |a| counted.contains(a.kind()))
    }

    /// The first `count` live allocations of each of [`Self::threads`], in order, of the kinds that
    /// are counted. How many there are behind them hardly matters.
    pub fn first_by_thread(&self, count: usize, by: By) -> Vec<Vec<&Allocation>> {
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

    /// Ages and kinds of the live allocations of each of [`Self::sites`], of the kinds that are
    /// counted; `None` if there are none.
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

    /// The physical memory that `allocation` is, if it is any.
    pub fn physical_of(&self, allocation: &Allocation) -> Option<&Physical> {
        match allocation.space() {
            Space::Physical => self.physical.get(allocation.address),
            _ => None,
        }
    }

    /// The name of the variable that `allocation` is, if it is one.
    pub fn name_of(&self, allocation: &Allocation) -> Option<&str> {
        match allocation.space() {
            Space::Variables => self.variables.get(&allocation.address)?.name.as_deref(),
            _ => None,
        }
    }

    /// The pool that `allocation` is from, if it is from any.
    pub fn pool_of(&self, allocation: &Allocation) -> Option<&Pool> {
        match allocation.kind() {
            MemoryKind::Async => self.pools.get(allocation.slot()),
            _ => None,
        }
    }

    /// Number of modules and libraries that are loaded.
    pub fn modules(&self) -> usize {
        self.modules.len()
    }

    /// Live GPU memory by device; what is nowhere else is on the only one.
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

    /// The device, if the process can see one only.
    pub(crate) fn only_device(&self) -> Option<u16> {
        self.identity.single_gpu.then_some(0)
    }

    /// The device of `allocation`: what the calls said, else 0 if there is no other.
    pub fn device(&self, allocation: &Allocation) -> Option<u16> {
        allocation.device().or(self.only_device())
    }
}
