//! The ledger fed from the rows of a file, which contain allocations and frees instead of calls.

use hashbrown::HashSet;

use super::allocation::{AllocationPlace, NewAllocation};
use super::process::{Process, Variable};
use super::{Allocation, Counts, Ledger};
use gpuprobe_cuda::{AddressSpace, MemoryKind};

/// An allocation as a row of a file has it.
#[derive(Clone, Copy, Debug)]
pub struct AllocationRow<'a> {
    /// Process id (tgid) in the file.
    pub pid: u32,
    /// Thread id; 0 if unknown.
    pub tid: u32,
    /// Device address, host address or handle.
    pub address: u64,
    /// Size of the allocation, bytes.
    pub bytes: u64,
    /// Time of the allocation, nanoseconds of the file's clock.
    pub time_ns: u64,
    /// Kind of the allocated memory.
    pub kind: MemoryKind,
    /// Address space of `address`.
    pub space: AddressSpace,
    /// Device index, if known.
    pub device: Option<u16>,
    /// Index into the function table, or a number beyond it.
    pub function: u16,
    /// Number that stands for function and call stack.
    pub caller: u32,
    /// Name of the device variable, if it is one.
    pub name: Option<&'a str>,
}

impl Ledger {
    /// A ledger to be fed with rows: it drops nothing, and keeps the memory that was live at the
    /// peak ([`Self::at_peak_of_rows`]).
    pub fn of_rows() -> Self {
        Self {
            is_of_rows: true,
            ..Self::default()
        }
    }

    /// Adds an allocation. Returns it, and the one that it supersedes at its address, whose free is
    /// not in the file.
    pub fn allocate(&mut self, row: &AllocationRow<'_>) -> (Allocation, Option<Allocation>) {
        self.account(row.pid, row.time_ns, |process| {
            let new = NewAllocation {
                address: row.address,
                size_bytes: row.bytes,
                end_ns: row.time_ns,
                thread: process.thread(row.tid),
                row: row.function,
                site: process.sites.of_row(row.caller, row.function),
                kind: row.kind,
                space: row.space,
                place: AllocationPlace::from(row.device),
                slot: u8::MAX,
                context: 0,
            };
            if let Some(name) = row.name {
                let name = Some(name.to_owned());
                process
                    .variables
                    .insert(row.address, Variable { module: 0, name });
            }
            let allocation = Allocation::new(&new);
            (allocation, process.add(allocation))
        })
    }

    /// Removes the allocation at `address`; `None` if there is none.
    pub fn free(
        &mut self,
        pid: u32,
        space: AddressSpace,
        address: u64,
        time_ns: u64,
    ) -> Option<Allocation> {
        self.processes.get(pid)?;
        self.account(pid, time_ns, |process| process.remove(space, address))
    }

    /// Adds a context that the process `pid` created. Contexts of a process are numbered.
    pub fn create_context(&mut self, pid: u32, number: u16, time_ns: u64) {
        self.keep(pid, |process| process.contexts.create(number, time_ns));
    }

    /// Removes a context that the process `pid` destroyed; `CONTEXT_UNKNOWN` if it is not known
    /// which one.
    pub fn destroy_context(&mut self, pid: u32, number: u16, time_ns: u64) {
        self.keep(pid, |process| process.contexts.destroy(number, time_ns));
    }

    /// Ends the process `pid`: the memory that it holds was never freed.
    pub fn end_process(&mut self, pid: u32, time_ns: u64) {
        self.end_at(pid, Some(time_ns));
    }

    /// All processes, so that a caller can set their names.
    pub fn processes_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.processes.iter_mut().chain(self.ended.iter_mut())
    }

    /// Sets the counts of calls, which rows do not contain.
    pub fn set_counts(&mut self, counts: Counts) {
        self.counts = counts;
    }

    /// Resets peaks and totals: the memory that is live now becomes the peak, and the call sites
    /// have allocated nothing yet.
    pub fn reset_sums(&mut self, time_ns: u64) {
        self.note_peak(time_ns);
        for process in self.processes.iter_mut() {
            process.peak_bytes = process.totals.sums.gpu.bytes;
            process.peak_ns = Some(time_ns);
            process.sites.begin_again();
        }
    }

    /// The ledger as it was at the peak, with the counts of calls of the whole time.
    pub fn at_peak_of_rows(&self) -> Self {
        let mut then = Self {
            counts: self.counts.clone(),
            live_bytes: self.peak_bytes,
            peak_bytes: self.peak_bytes,
            peak_ns: self.peak_ns,
            peaks: self.peaks,
            ..Self::of_rows()
        };
        for process in self.live_processes().chain(self.ended(true)) {
            let then_of = process.at_peak(self.peaks);
            if let Some(process) = then_of.filter(|process| !process.holds_nothing()) {
                then.processes.put(process);
            }
        }
        then
    }
}

/// Allocations and frees of a process since the peak with this number.
#[derive(Debug, Default)]
pub(super) struct SincePeak {
    peak: u32,
    /// Latest time of an allocation, and the latest of those before the peak: rows are nearly in
    /// the order of their times, so that most newer allocations are told by their times.
    last_ns: u64,
    last_before_ns: u64,
    /// Keys of the other live allocations made since the peak.
    new: HashSet<u64>,
    /// Allocations live at the peak and freed since, with the names of device variables.
    gone: Vec<(Allocation, Option<String>)>,
}

impl SincePeak {
    /// Called before anything changes.
    fn note(&mut self, peak: u32) {
        if self.peak != peak {
            self.peak = peak;
            self.last_before_ns = self.last_ns;
            self.new = HashSet::new();
            self.gone.clear();
        }
    }

    fn add(&mut self, allocation: &Allocation) {
        if allocation.end_ns <= self.last_before_ns {
            self.new.insert(allocation.key());
        }
        self.last_ns = self.last_ns.max(allocation.end_ns);
    }

    /// Whether a live allocation was made since the peak.
    fn has(&self, allocation: &Allocation) -> bool {
        allocation.end_ns > self.last_before_ns || self.new.contains(&allocation.key())
    }
}

impl Process {
    /// Enables [`Self::at_peak`] from now on.
    pub(super) fn keep_peak(&mut self) {
        self.since_peak.get_or_insert_default();
    }

    /// Notes a new allocation; called before the peak that it may cause.
    pub(super) fn note_new(&mut self, allocation: &Allocation) {
        let peak = self.sites.peak();
        if let Some(since) = &mut self.since_peak {
            since.note(peak);
            since.add(allocation);
        }
    }

    /// Notes a freed allocation.
    pub(super) fn note_gone(&mut self, allocation: &Allocation) {
        let peak = self.sites.peak();
        let Some(since) = &mut self.since_peak else {
            return;
        };
        since.note(peak);
        let is_new = since.has(allocation);
        since.new.remove(&allocation.key());
        if !is_new {
            let name = match allocation.space() {
                AddressSpace::Variables => self.variables.get(&allocation.address),
                _ => None,
            };
            let name = name.and_then(|variable| variable.name.clone());
            since.gone.push((*allocation, name));
        }
    }

    /// The process as it was at the peak with this number; `None` if it had ended by then.
    fn at_peak(&self, peak: u32) -> Option<Self> {
        let sites = self.sites.all_at_peak(peak)?;
        let since = self.since_peak.as_ref();
        let since = since.filter(|since| since.peak == peak);
        let mut then = self.without_memory(sites);
        let is_new = |allocation| since.is_some_and(|since| since.has(allocation));
        for allocation in self.live.iter().filter(|allocation| !is_new(allocation)) {
            then.restore(*allocation, self.name_of(allocation));
        }
        for (allocation, name) in since.iter().flat_map(|since| &since.gone) {
            then.restore(*allocation, name.as_deref());
        }
        Some(then)
    }

    /// Adds an allocation that its call site has counted already.
    fn restore(&mut self, allocation: Allocation, name: Option<&str>) {
        self.live.insert(allocation);
        self.count(&allocation);
        if let Some(name) = name {
            let name = Some(name.to_owned());
            let variable = Variable { module: 0, name };
            self.variables.insert(allocation.address, variable);
        }
    }

    /// Sets the name of thread `tid`, if it has allocated memory.
    pub fn name_thread(&mut self, tid: u32, comm: &str) {
        self.thread_mut(tid)
            .into_iter()
            .for_each(|thread| thread.comm = Some(comm.to_owned()));
    }
}
