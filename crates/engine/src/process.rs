//! A traced process: its threads and the memory they hold.

mod bounds;
mod held;
mod threads;

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use super::allocation::key;
use super::allowance::Allowance;
use super::change::{Change, Changes, MemoryOrigin};
use super::contexts::ProcessContexts;
use super::graphs::Graphs;
use super::imports::{Exporter, Imports};
use super::limits::{Account, Full};
use super::live::LiveSet;
use super::physical::PhysicalMemory;
use super::pools::PoolAccounts;
use super::sites::Sites;
use super::sites::series::SeriesShape;
use super::tensors::TensorAllocators;
use super::totals::{MemorySums, ProcessTotals, Total};
use super::{Allocation, Identity};
use gpuprobe_cuda::{AddressSpace, KindSet, MemoryKind};
use gpuprobe_model::event::Task;

pub use held::Span;

/// A thread that has called a traced function.
#[derive(Clone, Debug)]
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

/// Device and context in which a module was loaded.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadedModule {
    pub(super) device: Option<u16>,
    pub(super) slot: u8,
}

/// A device variable that the program has queried.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) module: u64,
    pub(super) name: Option<String>,
}

/// Units of [`LedgerUsage`] per variable: its module and its name.
const VARIABLE_UNITS: usize = 4;

/// A process that has called a traced function.
#[derive(Debug)]
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
    /// Exporters of the memory that it has open.
    pub(super) imports: Imports,
    /// Its identity as an exporter of memory.
    exporter: Option<Arc<Exporter>>,
    /// Loaded modules, and libraries, which belong to no context.
    pub(super) modules: HashMap<u64, Option<LoadedModule>>,
    /// Device variables by address.
    pub(super) variables: HashMap<u64, Variable>,
    /// Addresses of variables by module.
    pub(super) of_modules: HashMap<u64, BTreeSet<u64>>,
    /// Number of times that IPC memory was opened, by address.
    pub(super) opened: HashMap<u64, u32>,
    pub(super) live: LiveSet,
    /// Rate limit on scans of allocations when contexts end.
    pub(super) scans: Allowance,
    /// Number of calls dropped.
    pub(super) left_out: u64,
    /// Which tables are full, and the number of live allocations dropped for that reason.
    full: Full,
    pub(super) live_left_out: u64,
    /// Memory use of the process in the ledger, as last added to [`super::limits`].
    pub(super) account: Account,
    /// Changes of the call that is being applied.
    pub(super) changes: Changes,
    /// Memory kinds included in totals and sums.
    counted: KindSet,
    threads: Vec<TracedThread>,
    /// Indices into `threads` of live threads, by tid.
    by_tid: HashMap<u32, u32>,
    /// Indices into `threads` that can be reused.
    vacant: Vec<u32>,
}

impl Process {
    pub(super) fn new(pid: u32, counted: KindSet) -> Self {
        Self {
            pid,
            version: 0,
            uid: None,
            comm: None,
            exited: false,
            totals: ProcessTotals::default(),
            peak_bytes: 0,
            peak_ns: None,
            first_seen_ns: None,
            ended_ns: None,
            physical: PhysicalMemory::default(),
            pools: PoolAccounts::default(),
            sites: Sites::default(),
            tensors: TensorAllocators::default(),
            from_birth: false,
            identity: Identity::default(),
            graphs: Graphs::default(),
            contexts: ProcessContexts::default(),
            imports: Imports::default(),
            exporter: None,
            modules: HashMap::new(),
            variables: HashMap::new(),
            of_modules: HashMap::new(),
            opened: HashMap::new(),
            live: LiveSet::default(),
            scans: Allowance::default(),
            left_out: 0,
            full: Full::default(),
            account: Account::default(),
            live_left_out: 0,
            changes: Changes::default(),
            counted,
            threads: Vec::new(),
            by_tid: HashMap::new(),
            vacant: Vec::new(),
        }
    }

    /// Memory kinds included in totals and sums.
    pub fn counted(&self) -> KindSet {
        self.counted
    }

    /// Threads by index, including those that hold nothing.
    pub fn threads(&self) -> &[TracedThread] {
        &self.threads
    }

    /// Memory imported from traced processes, by exporter.
    pub fn imported_from(&self) -> Vec<(Arc<Exporter>, Total)> {
        let bytes = |key| self.live.get(key).map(|found| found.size_bytes);
        self.imports.totals(bytes)
    }

    /// Number of contexts that it has created and not destroyed.
    pub fn made_contexts(&self) -> u64 {
        self.contexts.made()
    }

    /// Time series of its contexts, for a verdict at `now_ns`.
    pub fn contexts_shape(&self, now_ns: u64) -> SeriesShape {
        self.contexts.shape(now_ns)
    }

    /// Its identity as an exporter of memory.
    pub(super) fn as_exporter(&mut self) -> Arc<Exporter> {
        let new = || {
            Arc::new(Exporter {
                pid: self.pid,
                comm: self.comm.clone(),
                command: self.identity.command.clone(),
            })
        };
        Arc::clone(self.exporter.get_or_insert_with(new))
    }

    /// Index into [`Self::threads`] of the thread that made `allocation`.
    pub fn thread_index(allocation: &Allocation) -> usize {
        allocation.thread() as usize
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
        if self.counted.contains(allocation.kind()) {
            self.sites.add(&allocation);
        }
        if allocation.kind() == MemoryKind::Async {
            self.pools.add(allocation.slot(), allocation.size_bytes);
        }
        old
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
        self.totals.add(allocation, self.counted);
        let owner = &mut self.threads[allocation.thread() as usize];
        owner.held += 1;
        if self.counted.contains(allocation.kind()) {
            owner.live.add(allocation);
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
        let Some(old) = self.live.resize(key(space, address), size_bytes) else {
            return;
        };
        let new = old.with_size(size_bytes);
        self.changes.record(|| Change::Freed(old.into()));
        self.changes.record(|| Change::Allocated(new.into()));
        self.totals.subtract(&old, self.counted);
        self.totals.add(&new, self.counted);
        self.note_peak(new.end_ns);
        if self.counted.contains(old.kind()) {
            let owner = &mut self.threads[old.thread() as usize];
            owner.live.subtract(&old);
            owner.live.add(&new);
            self.sites.resize(&old, &new);
        }
    }

    /// Subtracts a removed allocation from all sums.
    pub(super) fn uncount(&mut self, gone: &Allocation) {
        self.changes.record(|| Change::Freed((*gone).into()));
        self.totals.subtract(gone, self.counted);
        let owner = &mut self.threads[gone.thread() as usize];
        owner.held = owner.held.saturating_sub(1);
        if self.counted.contains(gone.kind()) {
            owner.live.subtract(gone);
            self.sites.subtract(gone);
        }
        self.vacate_if_done(gone.thread());
        if gone.kind() == MemoryKind::Imported {
            self.imports.remove(gone.key());
        }
        match gone.space() {
            AddressSpace::Variables => self.forget_variable(gone.address),
            AddressSpace::Shared => drop(self.opened.remove(&gone.address)),
            AddressSpace::Device if gone.kind() != MemoryKind::Async => {
                self.tensors.segment_gone(gone);
            }
            _ if gone.kind() == MemoryKind::Async => {
                self.pools.subtract(gone.slot(), gone.size_bytes);
            }
            _ => {}
        }
    }

    pub(super) fn forget_variable(&mut self, address: u64) {
        let Some(gone) = self.variables.remove(&address) else {
            return;
        };
        if let Some(of_module) = self.of_modules.get_mut(&gone.module) {
            of_module.remove(&address);
            if of_module.is_empty() {
                self.of_modules.remove(&gone.module);
            }
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
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
