//! A traced process: its threads and the memory they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;

use super::allocation::key;
use super::change::{Change, Changes, MemoryOrigin};
use super::contexts::ProcessContexts;
use super::graphs::Graphs;
use super::handles::Handles;
use super::imports::Exporter;
use super::live::LiveSet;
use super::outside::Outside;
use super::physical::{PhysicalAllocation, PhysicalMemory};
use super::pools::{PoolAccount, PoolAccounts};
use super::sites::Sites;
use super::tensors::{Allocator, TensorAllocators};
use super::totals::{MemorySums, ProcessTotals, Total};
use super::{Allocation, Identity};
use gpuprobe_cuda::{AddressSpace, Belongs, HandleKind, KindSet, MemoryKind};
use gpuprobe_model::event::Task;

/// A thread that has called a traced function.
#[derive(Clone, Debug, Default)]
pub struct TracedThread {
    /// Thread id in the initial PID namespace.
    pub tid: u32,
    /// Name (comm) of the thread, if the BPF program could read it.
    pub comm: Option<String>,
    /// Live memory that the thread allocated.
    pub live: MemorySums,
    /// Number of its live allocations, of all kinds.
    held: u64,
    exited: bool,
}

/// A device variable that the program has queried.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) module: u64,
    pub(super) name: Option<String>,
}

/// Units of [`Process::kept`] per variable: its module and its name.
const VARIABLE_UNITS: usize = 4;

/// A process that has called a traced function.
#[derive(Debug, Default)]
pub struct Process {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// A number that is another after each event of the process, and unlike those of all other processes.
    pub version: u64,
    /// User id, if the BPF program could read it.
    pub uid: Option<u32>,
    /// Name (comm) of the process, if the BPF program could read it.
    pub comm: Option<String>,
    /// Whether the process has ended or called `exec`; its live memory was never freed.
    pub exited: bool,
    /// Sums of live memory.
    pub totals: ProcessTotals,
    /// Its GPU memory while it is checkpointed, which is in no other sum.
    pub(super) checkpointed: Option<ProcessTotals>,
    /// Peak of its GPU memory, bytes.
    pub peak_bytes: u64,
    /// When the peak was reached, `CLOCK_MONOTONIC` nanoseconds; `None` if it never held any.
    pub peak_ns: Option<u64>,
    /// When the process was first seen, `CLOCK_MONOTONIC` nanoseconds, if known.
    pub first_seen_ns: Option<u64>,
    /// When it ended or called `exec`, `CLOCK_MONOTONIC` nanoseconds, if that was seen.
    pub ended_ns: Option<u64>,
    /// Physical memory and its mappings.
    pub physical: PhysicalMemory,
    /// Pools of stream-ordered memory.
    pub pools: PoolAccounts,
    /// Call sites of its allocations.
    pub sites: Sites,
    /// Tensors that allocators of frameworks have placed in its memory.
    pub tensors: TensorAllocators,
    /// Whether it was traced from its start.
    pub from_birth: bool,
    /// Identity of the process: its command line, container and GPUs.
    pub identity: Identity,
    pub(super) graphs: Graphs,
    pub(super) contexts: ProcessContexts,
    /// Streams, modules, contexts and the like that it made.
    pub handles: Handles,
    /// What NVML says beyond its allocations.
    pub outside: Outside,
    /// Exporters of the memory that it has open, as far as the exports were seen, by allocation key.
    pub(super) imports: HashMap<u64, Arc<Exporter>>,
    /// Device variables by address.
    pub(super) variables: HashMap<u64, Variable>,
    /// Addresses of variables by module.
    pub(super) of_modules: HashMap<u64, BTreeSet<u64>>,
    /// Number of times that IPC memory was opened, by address.
    pub(super) opened: HashMap<u64, u32>,
    pub(super) live: LiveSet,
    /// Number of calls dropped.
    pub(super) left_out: u64,
    /// Calls with a value of an enumeration that gpuprobe doesn't know, since they were last reported.
    pub(super) unknown_values: u64,
    /// Whether there is no room for more, and the number of live allocations dropped for that reason.
    pub(super) is_full: bool,
    pub(super) live_left_out: u64,
    /// [`Self::kept`] as last added to [`super::limits`].
    pub(super) units: usize,
    /// Number of changes since then, up to 63.
    pub(super) unmeasured: u8,
    /// Changes of the call that is being applied.
    pub(super) changes: Changes,
    /// Memory kinds included in totals and sums.
    pub counted: KindSet,
    /// Live threads, and ended ones with live memory, by tid.
    threads: HashMap<u32, TracedThread>,
}

impl Process {
    pub(super) fn new(pid: u32, counted: KindSet) -> Self {
        Self {
            pid,
            counted,
            ..Self::default()
        }
    }

    /// Its threads, including those that hold nothing, in no particular order.
    pub fn threads(&self) -> impl Iterator<Item = &TracedThread> {
        self.threads.values()
    }

    /// Memory imported from traced processes, by exporter, in the order of process ids.
    pub fn imported_from(&self) -> Vec<(Arc<Exporter>, Total)> {
        let mut sums: BTreeMap<&Arc<Exporter>, Total> = BTreeMap::new();
        for (&key, exporter) in &self.imports {
            if let Some(memory) = self.live.get(key) {
                sums.entry(exporter).or_default().add(memory.size_bytes);
            }
        }
        let sums = sums.into_iter();
        sums.map(|(of, sum)| (Arc::clone(of), sum)).collect()
    }

    /// GPU memory that a checkpoint moved to the host.
    pub fn checkpointed(&self) -> Option<Total> {
        Some(self.checkpointed.as_ref()?.sums.gpu)
    }

    pub(super) fn checkpoint(&mut self) {
        self.restore();
        self.checkpointed = Some(self.totals.take_gpu());
    }

    pub(super) fn restore(&mut self) {
        if let Some(gpu) = self.checkpointed.take() {
            self.totals.put_back(gpu);
        }
    }

    pub(super) fn introduce(&mut self, task: &Task, identity: Option<Identity>) {
        self.uid = Some(task.uid);
        self.first_seen_ns.get_or_insert(task.time_ns);
        self.comm = Some(task.comm.clone());
        if let Some(identity) = identity {
            self.identity = identity;
        }
        self.from_birth |= task.from_birth;
    }

    /// Adds an allocation. Returns the one that it supersedes at its address: it has been freed,
    /// but its free has not returned yet.
    pub(super) fn add(&mut self, allocation: Allocation) -> Option<Allocation> {
        let old = self.live.insert(allocation);
        if let Some(old) = old {
            self.uncount(&old);
            // Its free will find nothing when it returns.
            if let Some(Change::Freed(block)) = self.changes.list.pop() {
                self.changes.list.push(Change::Superseded(block));
            }
        }
        self.changes.record(|| Change::Allocated(allocation.into()));
        self.count(&allocation);
        self.note_peak(allocation.end_ns);
        self.note_birth();
        if self.counted.contains(allocation.kind()) {
            self.sites.add(&allocation);
        }
        if allocation.kind() == MemoryKind::Async {
            self.pools.add(allocation.slot(), allocation.size_bytes);
        }
        old
    }

    /// Notes that it, or an allocator of a framework in it, allocates.
    pub(super) fn note_birth(&mut self) {
        self.sites.set_births(self.sites.births() + 1);
    }

    /// Updates the peak after an allocation.
    fn note_peak(&mut self, time_ns: u64) {
        let bytes = self.totals.sums.gpu.bytes;
        if bytes > self.peak_bytes {
            (self.peak_bytes, self.peak_ns) = (bytes, Some(time_ns));
        }
    }

    /// Adds an allocation to the sums of the process and of its thread.
    pub(super) fn count(&mut self, allocation: &Allocation) {
        self.thread(allocation.tid()).held += 1;
        if self.counted.contains(allocation.kind()) {
            self.totals.add(allocation);
            self.thread(allocation.tid()).live.add(allocation);
        }
    }

    /// Removes the allocation at `address` in `space`.
    pub(super) fn remove(&mut self, space: AddressSpace, address: u64) -> Option<Allocation> {
        let gone = self.live.remove(key(space, address))?;
        self.uncount(&gone);
        Some(gone)
    }

    /// Corrects the size of the allocation at `address` in `space`. It stays the same allocation,
    /// and with the thread that made it, which may have ended.
    pub(super) fn resize(&mut self, space: AddressSpace, address: u64, size_bytes: u64) {
        let Some(held) = self.live.get_mut(key(space, address)) else {
            return;
        };
        let old = *held;
        held.size_bytes = size_bytes;
        let new = *held;
        self.changes.record(|| Change::Freed(old.into()));
        self.changes.record(|| Change::Allocated(new.into()));
        if self.counted.contains(old.kind()) {
            self.totals.subtract(&old);
            self.totals.add(&new);
            let owner = self.thread(old.tid());
            owner.live.subtract(&old);
            owner.live.add(&new);
            self.sites.replace(&old, &new);
        }
        self.note_peak(new.end_ns);
    }

    /// Subtracts a removed allocation from all sums.
    pub(super) fn uncount(&mut self, gone: &Allocation) {
        let is_counted = self.counted.contains(gone.kind());
        let owner = self.thread(gone.tid());
        owner.held = owner.held.saturating_sub(1);
        if is_counted {
            owner.live.subtract(gone);
        }
        if owner.exited && owner.held == 0 {
            self.threads.remove(&gone.tid());
        }
        if is_counted {
            self.totals.subtract(gone);
            self.sites.subtract(gone);
        }
        if gone.kind() == MemoryKind::Imported {
            self.imports.remove(&gone.key());
        }
        match gone.space() {
            AddressSpace::Variables => self.forget_variable(gone.address),
            AddressSpace::Shared => drop(self.opened.remove(&gone.address)),
            AddressSpace::Device if gone.kind() != MemoryKind::Async => {
                self.tensors.segment_gone(gone, &mut self.changes);
            }
            _ if gone.kind() == MemoryKind::Async => {
                self.pools.subtract(gone.slot(), gone.size_bytes);
            }
            _ => {}
        }
        self.changes.record(|| Change::Freed((*gone).into()));
    }

    pub(super) fn forget_variable(&mut self, address: u64) {
        let Some(gone) = self.variables.remove(&address) else {
            return;
        };
        if let Some(of_module) = self.of_modules.get_mut(&gone.module)
            && of_module.remove(&address)
            && of_module.is_empty()
        {
            self.of_modules.remove(&gone.module);
        }
    }

    /// Fills in the origin of the changed allocations, once the call has been applied.
    pub(super) fn finish_changes(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        for change in &mut changes.list {
            if let Change::Allocated(block) | Change::Freed(block) | Change::Superseded(block) =
                change
            {
                block.origin = self.origin_of(&block.allocation).map(Box::new);
            }
        }
        self.changes = changes;
    }

    fn origin_of(&self, allocation: &Allocation) -> Option<MemoryOrigin> {
        let pool = self.pool_of(allocation);
        let origin = MemoryOrigin {
            pool: pool.and_then(|pool| pool.handle),
            reserved_bytes: pool.and_then(|pool| pool.reserved_bytes),
            variable: self.name_of(allocation).map(str::to_owned),
        };
        (origin != MemoryOrigin::default()).then_some(origin)
    }

    /// Number of live allocations, and of live tensors in them.
    pub(super) fn held(&self) -> usize {
        let tensors = self.tensors.iter().map(|a| a.blocks.live.len());
        self.live.len() + tensors.sum::<usize>()
    }

    /// Live allocations of the counted kinds, in no particular order; not those that a checkpoint has moved.
    pub fn allocations(&self) -> impl Iterator<Item = &Allocation> {
        let (counted, has_gpu) = (self.counted, self.checkpointed.is_none());
        let all = self.live.iter();
        let all = all.filter(move |a| has_gpu || a.belongs() != Belongs::Gpu);
        all.filter(move |a| counted.contains(a.kind()))
    }

    /// What the thread has allocated and holds.
    pub fn held_by(&self, thread: &TracedThread) -> MemorySums {
        match self.checkpointed {
            Some(_) => MemorySums {
                gpu: Total::default(),
                ..thread.live
            },
            None => thread.live,
        }
    }

    /// The allocation that is the physical memory with this number.
    pub fn physical_allocation(&self, id: u64) -> Option<&Allocation> {
        self.live.get(key(AddressSpace::Physical, id))
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
    pub fn modules(&self) -> u64 {
        self.handles.live(HandleKind::Module) + self.handles.live(HandleKind::Library)
    }

    /// GPU memory that is certain to be on a GPU, bytes: of managed memory, only a part is.
    pub fn tracked_bytes(&self) -> u64 {
        let managed = self.totals.kinds();
        let managed = managed.filter(|(kind, _)| *kind == MemoryKind::Managed);
        let managed = managed.map(|(_, total)| total.bytes).sum();
        self.totals.sums.gpu.bytes.saturating_sub(managed)
    }

    /// Live GPU memory by device and memory kind; memory on an unknown device counts for the only one, if
    /// there is only one.
    pub fn device_kinds(&self) -> Vec<(Option<u16>, MemoryKind, Total)> {
        let mut sums: BTreeMap<_, Total> = BTreeMap::new();
        for (device, kind, total) in self.totals.device_kinds() {
            let device = device.or(self.only_device());
            let sum = sums.entry((device.is_none(), device, kind)).or_default();
            sum.merge(total);
        }
        let sums = sums.into_iter();
        sums.map(|((_, device, kind), sum)| (device, kind, sum))
            .collect()
    }

    /// The same by device.
    pub fn devices(&self) -> Vec<(Option<u16>, Total)> {
        let mut sums: Vec<(Option<u16>, Total)> = Vec::new();
        for (device, _, total) in self.device_kinds() {
            match sums.last_mut() {
                Some((last, sum)) if *last == device => sum.merge(total),
                _ => sums.push((device, total)),
            }
        }
        sums
    }

    /// The device index, if the process can see one GPU only.
    pub(super) fn only_device(&self) -> Option<u16> {
        self.identity.single_gpu.then_some(0)
    }

    /// Device of `allocation`, as the call gave it, else 0 if the process sees one GPU only.
    pub fn device(&self, allocation: &Allocation) -> Option<u16> {
        allocation.device().or(self.only_device())
    }

    /// The thread `tid` has begun, and has this name.
    pub(super) fn introduce_thread(&mut self, task: &Task) {
        let thread = self.thread(task.tid);
        (thread.comm, thread.exited) = (Some(task.comm.clone()), false);
    }

    pub(super) fn end_thread(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.exited = true;
            if thread.held == 0 {
                self.threads.remove(&tid);
            }
        }
    }

    /// Sets the name of thread `tid`, if it has allocated memory.
    pub fn name_thread(&mut self, tid: u32, comm: &str) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.comm = Some(comm.to_owned());
        }
    }

    /// The thread `tid`, which may be new.
    fn thread(&mut self, tid: u32) -> &mut TracedThread {
        let new = || TracedThread {
            tid,
            ..TracedThread::default()
        };
        self.threads.entry(tid).or_insert_with(new)
    }

    /// Units of about 64 bytes kept for the process.
    pub(super) fn kept(&self) -> usize {
        let of_tensors = |allocator: &Allocator| allocator.blocks.kept() + allocator.kept();
        self.live.len()
            + self.handles.kept()
            + self.variables.len() * VARIABLE_UNITS
            + self.opened.len()
            + self.threads.len() * 2
            + self.live.superseded.len()
            + self.sites.kept()
            + self.imports.len()
            + self.physical.kept()
            + self.pools.kept()
            + self.graphs.kept()
            + self.tensors.kept()
            + self.tensors.iter().map(of_tensors).sum::<usize>()
    }

    pub(super) fn set_full(&mut self, is_full: bool) {
        if self.is_full != is_full {
            (self.is_full, self.sites.is_full) = (is_full, is_full);
            let blocks = self.tensors.blocks_mut();
            blocks.for_each(|blocks| blocks.set_full(is_full));
        }
    }

    /// Whether a free of an unknown allocation may be of one that was dropped.
    pub(super) fn frees_left_out(&mut self) -> bool {
        let may = self.live_left_out > 0;
        self.live_left_out = self.live_left_out.saturating_sub(1);
        may
    }

    /// Numbers of calls, tensors and call stacks that were dropped since the last call, and of calls with
    /// unknown values.
    pub(super) fn take_all_left_out(&mut self) -> [u64; 4] {
        let (mut tensors, mut stacks) = (0, self.sites.take_left_out());
        for blocks in self.tensors.blocks_mut() {
            tensors += std::mem::take(&mut blocks.left_out);
            stacks += blocks.sites.take_left_out();
        }
        let unknown_values = std::mem::take(&mut self.unknown_values);
        [
            std::mem::take(&mut self.left_out),
            tensors,
            stacks,
            unknown_values,
        ]
    }
}

#[cfg(test)]
mod tests;
