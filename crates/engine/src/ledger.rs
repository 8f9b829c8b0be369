//! The ledger: live memory of every traced process.
//!
//! Allocations are keyed by process and address, so that a free from any thread finds them. A free
//! removes the allocation that was live when the free was *entered*, never a newer one: the driver
//! may hand a freed address to another thread before the free has returned.

use std::mem;
use std::rc::Rc;

use hashbrown::HashMap;

use super::addresses::{AddressIndex, AddressKind};
use super::calls::Effect;
use super::change::{Change, Changes};
use super::ended::{EndedProcesses, Forgotten};
use super::incidents::{self, GivenUp, HeldByProcess, Incident, Incidents, MemoryRequest};
use super::limits::{Dropped, LedgerLimits, LedgerUsage};
use super::process::Process;
use super::process_table::ProcessTable;
use super::totals::MemorySums;
use super::{CallSite, Identity};
use gpuprobe_cuda::{EXTRA, FUNCTIONS, KindSet, MemoryKind, Op};
use gpuprobe_model::event::{Call, Event, OutOfMemory, Task};
use gpuprobe_model::stack::CallStack;
use gpuprobe_model::{GpuUse, UserLoss};

/// Counts of calls, over all processes since the start.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Successful calls of allocating functions.
    pub alloc_calls: u64,
    /// Successful frees; a free of a null pointer does nothing and is not counted.
    pub free_calls: u64,
    /// Calls that returned an error.
    pub failed_calls: u64,
    /// Successful frees of memory with no known allocation.
    pub unknown_frees: u64,
    /// Frees of a null pointer.
    pub null_frees: u64,
    /// Successful calls by row of the function table.
    pub by_row: Vec<u64>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            alloc_calls: 0,
            free_calls: 0,
            failed_calls: 0,
            unknown_frees: 0,
            null_frees: 0,
            by_row: vec![0; FUNCTIONS.len()],
        }
    }
}

/// Live memory of all traced processes, updated by events.
#[derive(Debug, Default)]
pub struct Ledger {
    pub(super) processes: ProcessTable,
    pub(super) ended: EndedProcesses,
    /// Counts of the calls so far.
    pub counts: Counts,
    pub(super) live_bytes: u64,
    pub(super) peak_bytes: u64,
    /// When the peak was reached, and how often there was a new peak.
    pub(super) peak_ns: Option<u64>,
    pub(super) peaks: u32,
    /// Whether its events are those of a file, of which nothing is dropped.
    pub(super) is_of_file: bool,
    /// Frees of an export that had an allocation, by functions that do nothing else.
    pub(super) plain_frees: u64,
    /// Exported memory, by its IPC handle of 64 bytes.
    pub(super) shared: HashMap<[u64; EXTRA], u64>,
    /// Memory that the ledger itself uses.
    pub(super) limits: LedgerLimits,
    /// Out-of-memory incidents of the run.
    pub incidents: Incidents,
    /// Changes that events cause.
    pub(super) changes: Changes,
    /// Index of addresses for [`Self::find_address`], if enabled.
    pub(super) addresses: Option<AddressIndex>,
}

/// Exports kept; a program may export the same memory over and over.
const MAX_SHARED: usize = 65_536;

impl Ledger {
    /// A ledger with sums and listings of the memory kinds `counted` only. Allocations of other
    /// kinds are kept, too.
    pub fn counting(counted: KindSet) -> Self {
        Self {
            processes: ProcessTable::counting(counted),
            ..Self::default()
        }
    }

    /// Enables [`Self::find_address`] for memory allocated from now on.
    pub fn index_addresses(&mut self) {
        if self.addresses.is_none() {
            self.addresses = Some(AddressIndex::default());
        }
    }

    /// Location of `address` in process `pid` at `at_ns`, if it is in a known allocation. Freed
    /// device memory is known for a few seconds.
    pub fn find_address(&self, pid: u32, address: u64, at_ns: u64) -> Option<AddressKind> {
        let addresses = self.addresses.as_ref()?;
        addresses.find(pid, self.processes.get(pid), address, at_ns)
    }

    /// Applies an event for [`Self::find_address`] only: this ledger is not reported, and records
    /// no changes.
    pub fn apply_unreported(&mut self, event: &Event) {
        self.index_addresses();
        match event {
            Event::Call(call) => {
                let is_enabled = mem::take(&mut self.changes.is_enabled);
                self.call(call);
                self.changes.is_enabled = is_enabled;
            }
            Event::Exit(task) | Event::Exec(task) => self.end(task),
            _ => {}
        }
    }

    /// Applies an event. `identity` identifies a process; it is called once per process.
    pub fn apply(&mut self, event: &Event, identity: impl FnOnce(&Task) -> Identity) {
        match event {
            Event::Call(call) => {
                self.call(call);
                // What became of a call matters to incidents, if it failed or one is open.
                if call.result != 0 || self.incidents.any_is_open() {
                    self.note_outcome(call);
                }
            }
            Event::Process(task) => {
                let process = self.processes.enter(task.pid);
                let identity = process.uid.is_none().then(|| identity(task));
                process.introduce(task, identity);
            }
            Event::Thread(task) => self.keep(task.pid, |process| process.introduce_thread(task)),
            Event::ThreadExit(task) => {
                if let Some(process) = self.processes.get_mut(task.pid) {
                    process.end_thread(task.tid);
                }
            }
            Event::Exit(task) | Event::Exec(task) => self.end(task),
            Event::Tensor(tensor) => {
                let mut changes = mem::take(&mut self.changes);
                let is_known = self.keep(tensor.pid, |process| {
                    process.apply_tensor(tensor, &mut changes)
                });
                self.changes = changes;
                self.limits.left_out.tensors += u64::from(!is_known);
                if !tensor.is_free && self.incidents.is_open(tensor.pid) {
                    let who = (tensor.pid, tensor.tid);
                    self.incidents.given(who, None, tensor.time_ns);
                    self.record_incidents();
                }
            }
            Event::OutOfMemory(oom) => self.gave_up(oom),
            Event::Request(request) => {
                self.keep(request.pid, |process| process.apply_request(request));
            }
            Event::Memory(event) => self.memory(event),
            Event::Kernel(_) | Event::Launch(_) | Event::Copy(_) | Event::Activity(_) => {}
        }
    }

    /// Sets the call stack of calls of `pid` with stack number `number`. Called before the first of
    /// these calls, and possibly before any other event of the process. Calls with number 0, or an
    /// unknown one, have only their function as call site.
    ///
    /// Stack numbers are dropped when the process ends or calls `exec`.
    pub fn set_stack(&mut self, pid: u32, number: u64, stack: Rc<CallStack>) {
        if self.processes.get(pid).is_none() {
            self.processes.keep_early_stack(pid, number, stack);
            return;
        }
        self.keep(pid, |process| process.sites.learn(number, stack));
    }

    /// What was dropped because it would have taken too much time or memory.
    pub fn left_out(&self) -> Dropped {
        self.limits.left_out
    }

    /// Dropped events by process.
    pub fn left_out_by_process(&self) -> impl Iterator<Item = UserLoss> {
        self.limits.lost()
    }

    /// Peak of the GPU memory that live processes held together, bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// When the peak was reached, `CLOCK_MONOTONIC` nanoseconds; `None` if no memory was ever held.
    pub fn peak_ns(&self) -> Option<u64> {
        self.peak_ns
    }

    /// Memory of a call site of `process` that was live at the peak.
    pub fn at_peak(&self, process: &Process, site: &CallSite) -> MemorySums {
        process.sites.at_peak(site, self.peaks)
    }

    /// Live processes, in no particular order.
    pub fn live_processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter()
    }

    /// Live processes, and ended ones as [`Self::ended`].
    pub fn processes(&self, all: bool) -> impl Iterator<Item = &Process> {
        self.live_processes().chain(self.ended(all))
    }

    /// The live process with this id.
    pub fn process_of(&self, pid: u32) -> Option<&Process> {
        self.processes.get(pid)
    }

    /// Ended processes in the order of their ends: those that no report has shown yet, or all.
    pub fn ended(&self, all: bool) -> impl Iterator<Item = &Process> {
        self.ended.listed(all)
    }

    /// Sums over ended processes that [`Self::ended`] no longer lists.
    pub fn forgotten(&self) -> &Forgotten {
        &self.ended.forgotten
    }

    /// Notes that a report has shown the ended processes.
    pub fn mark_reported(&mut self) {
        self.ended.mark_reported();
        self.incidents.mark_reported();
    }

    fn call(&mut self, call: &Call) {
        if call.result != 0 {
            self.counts.failed_calls += u64::from(call.function.op.is_memory());
            // A capture that was invalidated has ended, too.
            if call.function.op == Op::CaptureEnd
                && let Some(process) = self.processes.get_mut(call.pid)
            {
                process.graphs.end_capture(call.context, 0);
            }
            return;
        }
        if let Some(count) = self.counts.by_row.get_mut(usize::from(call.row)) {
            *count += u64::from(!call.captured);
        }
        if call.function.op == Op::ShareExport {
            self.export(call);
            return;
        }
        let (known, is_enabled) = (self.changes.list.len(), self.changes.is_enabled);
        self.changes.is_enabled |= self.addresses.is_some();
        let shared = self.shared_by(call);
        let effect = self.account(call.pid, call.end_ns, |process| {
            let effect = process.apply(call, shared);
            if is_enabled {
                process.finish_changes();
            }
            effect
        });
        self.changes.is_enabled = is_enabled;
        if let Some(addresses) = &mut self.addresses {
            addresses.apply(call, &self.changes.list[known..]);
            if !is_enabled {
                self.changes.list.truncate(known);
            }
        }
        let counts = &mut self.counts;
        match effect {
            Effect::Allocated => counts.alloc_calls += 1,
            Effect::Freed => counts.free_calls += 1,
            Effect::FreedUnknown => {
                self.changes.record(|| Change::UnknownFree(call.address));
                counts.free_calls += 1;
                counts.unknown_frees += 1;
            }
            Effect::FreedNull => counts.null_frees += 1,
            Effect::Other => {}
        }
    }

    /// Applies `change` to the live process `pid`, and updates the sums over all processes.
    pub(super) fn account<T>(
        &mut self,
        pid: u32,
        time_ns: u64,
        change: impl FnOnce(&mut Process) -> T,
    ) -> T {
        let (peaks, records) = (self.peaks, self.changes.is_enabled);
        let process = self.processes.enter(pid);
        // Those of a process are empty otherwise, and not recorded.
        if records {
            mem::swap(&mut self.changes, &mut process.changes);
        }
        let before = process.totals.sums.gpu.bytes;
        process.sites.after_peak(peaks, time_ns);
        let effect = self.limits.within(process, self.is_of_file, change);
        let after = process.totals.sums.gpu.bytes;
        if records {
            mem::swap(&mut self.changes, &mut process.changes);
        }
        self.live_bytes = self.live_bytes.saturating_sub(before).saturating_add(after);
        if self.live_bytes > self.peak_bytes {
            self.note_peak(time_ns);
        }
        effect
    }

    /// Applies `change` to the process `pid`, which may be new, within the limits on the ledger's
    /// memory.
    pub(super) fn keep<T>(&mut self, pid: u32, change: impl FnOnce(&mut Process) -> T) -> T {
        let process = self.processes.enter(pid);
        self.limits.within(process, self.is_of_file, change)
    }

    /// Notes that the current live memory is the peak.
    pub(super) fn note_peak(&mut self, time_ns: u64) {
        self.peak_bytes = self.live_bytes;
        self.peak_ns = Some(time_ns);
        self.peaks = self.peaks.wrapping_add(1);
    }

    /// Ends `pid`, for which no exit event was seen.
    pub fn end_unseen(&mut self, pid: u32) {
        self.end_at(pid, None);
    }

    pub(super) fn end_at(&mut self, pid: u32, time_ns: Option<u64>) {
        self.incidents.end(pid, time_ns);
        self.record_incidents();
        let Some(mut process) = self.processes.remove(pid) else {
            return;
        };
        process.ended_ns = time_ns;
        process.exited = true;
        if let Some(addresses) = &mut self.addresses {
            addresses.end_process(&process, time_ns);
        }
        process.sites.after_peak(self.peaks, time_ns.unwrap_or(0));
        process.sites.end();
        let gpu = process.totals.sums.gpu;
        self.live_bytes = self.live_bytes.saturating_sub(gpu.bytes);
        let kept = process.account.kept;
        self.ended.push(process);
        if !self.is_of_file {
            self.limits.change(kept, LedgerUsage::default());
            self.ended.forget_surplus();
        }
    }

    fn end(&mut self, task: &Task) {
        self.processes.drop_early_stacks(task.pid);
        self.end_at(task.pid, Some(task.time_ns));
    }

    /// Sets the memory use of the GPU of incident `id`, from NVML.
    pub fn set_incident_use(&mut self, id: u64, gpu: GpuUse) {
        self.incidents.learn(id, gpu);
    }

    /// Updates incidents with a call that has returned: a failed request, or a successful one of a
    /// thread with an open incident.
    fn note_outcome(&mut self, call: &Call) {
        if incidents::is_refused(call) {
            self.refused(call);
        } else if call.result == 0
            && call.function.op.allocates()
            && !call.captured
            && self.incidents.is_open(call.pid)
        {
            let who = (call.pid, call.tid);
            self.incidents.given(who, Some(call), call.end_ns);
            self.record_incidents();
        }
    }

    fn refused(&mut self, call: &Call) {
        self.processes.enter(call.pid);
        let processes = &self.processes;
        let Some(process) = processes.get(call.pid) else {
            return;
        };
        let (asked, when) = (MemoryRequest::of(call, process), (call.tid, call.end_ns));
        let incident = |id, asked| Incident::new(id, process, when, asked).among(processes.iter());
        self.incidents.refused(call.pid, when, asked, incident);
        self.record_incidents();
    }

    /// Records that the allocator of a framework has given up.
    fn gave_up(&mut self, oom: &OutOfMemory) {
        self.processes.enter(oom.pid);
        let processes = &self.processes;
        let Some(process) = processes.get(oom.pid) else {
            return;
        };
        let when = (oom.tid, oom.time_ns);
        let incident = |id| {
            let asked = MemoryRequest::reported(oom, process);
            Incident::new(id, process, when, asked).among(processes.iter())
        };
        let held = || HeldByProcess::of(process, Some(oom.device), false);
        let given_up = GivenUp::of(oom, process);
        self.incidents.gave_up(oom, given_up, held, incident);
        self.record_incidents();
    }

    fn record_incidents(&mut self) {
        for row in self.incidents.take_changed() {
            self.changes.record(|| Change::Incident(Box::new(row)));
        }
    }

    /// Bytes of the memory that the call opens or imports, if a traced process has exported it: under an IPC handle of
    /// 64 bytes.
    fn shared_by(&self, call: &Call) -> Option<u64> {
        let function = call.function;
        let opens = function.op == Op::ShareOpen || function.kind == MemoryKind::Imported;
        let detail = call.detail.as_deref().filter(|_| opens)?;
        self.shared.get(&detail.values).copied()
    }

    fn export(&mut self, call: &Call) {
        let process = self.processes.get(call.pid);
        let size = process.and_then(|process| process.size_at(call.address));
        if let (Some(size_bytes), Some(detail)) = (size, &call.detail) {
            if self.shared.len() >= MAX_SHARED {
                self.shared.clear();
            }
            self.shared.insert(detail.values, size_bytes);
        }
    }
}
