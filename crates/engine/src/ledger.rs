//! The ledger: live memory of every traced process.
//!
//! Allocations are keyed by process and address, so that a free from any thread finds them. A free
//! removes the allocation that was live when the free was *entered*, never a newer one: the driver
//! may hand a freed address to another thread before the free has returned.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use super::addresses::{AddressIndex, AddressKind};
use super::calls::Effect;
use super::change::{Change, Changes};
use super::ended::{self, EndedProcesses, Forgotten};
use super::imports::{Export, Exporter};
use super::incidents::{self, Incidents};
use super::limits::LedgerLimits;
use super::process::Process;
use super::process_table::ProcessTable;
use super::totals::MemorySums;
use super::{CallSite, Identity};
use gpuprobe_cuda::{EXTRA, KindSet, MemoryKind, Op};
use gpuprobe_model::event::{Call, Event, Task};
use gpuprobe_model::stack::CallStack;
use gpuprobe_model::{Lost, UserLoss};

/// Counts of calls, over all processes since the start.
#[derive(Clone, Debug, Default)]
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
    /// Successful calls by row of the function table, up to the last one that was called.
    pub by_row: Vec<u64>,
}

impl Counts {
    /// Adds successful calls of the function in `row` of the table.
    pub(super) fn add(&mut self, row: u16, calls: u64) {
        let row = usize::from(row);
        if self.by_row.len() <= row {
            self.by_row.resize(row + 1, 0);
        }
        self.by_row[row] += calls;
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
    /// Peak of the GPU memory that live processes held together, bytes.
    pub peak_bytes: u64,
    /// When the peak was reached, `CLOCK_MONOTONIC` nanoseconds; `None` if no memory was ever held.
    pub peak_ns: Option<u64>,
    /// Number of new peaks.
    pub(super) peaks: u32,
    /// Whether its events are those of a file, of which nothing is dropped.
    pub(super) is_of_file: bool,
    /// Frees of an export that had an allocation, by functions that do nothing else.
    pub(super) plain_frees: u64,
    /// Exported memory, by its IPC handle of 64 bytes.
    pub(super) shared: HashMap<[u64; EXTRA], Export>,
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
        self.addresses.get_or_insert_default();
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
            Event::Exit(task) => self.end(task),
            Event::Exec(task) => {
                // The program goes on: what it has freed is no teardown.
                if let Some(process) = self.processes.get_mut(task.pid) {
                    process.note_birth();
                }
                self.end(task);
            }
            Event::Checkpoint(task) => self.move_memory(task, Process::checkpoint),
            Event::Restore(task) => self.move_memory(task, Process::restore),
            Event::Tensor(tensor) => {
                self.keep_tensors(tensor.pid, |process, changes| {
                    process.apply_tensor(tensor, changes)
                });
                if !tensor.is_free && self.incidents.is_open(tensor.pid) {
                    let who = (tensor.pid, tensor.tid);
                    self.incidents.given(who, None, tensor.time_ns);
                }
            }
            Event::OutOfMemory(oom) => {
                self.processes.enter(oom.pid);
                self.incidents.gave_up(oom, &self.processes);
            }
            Event::Blocks(found) => {
                self.keep_tensors(found.pid, |process, changes| {
                    process.apply_found(found, changes)
                });
            }
            Event::Request(request) => {
                self.keep(request.pid, |process| process.apply_request(request));
            }
            Event::Memory(event) => self.memory(event),
            Event::Kernel(_) | Event::Launch(_) | Event::Copy(_) | Event::Activity(_) => {}
        }
        self.record_incidents();
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

    /// NVML reports that processes have so many bytes on GPUs, at this time.
    pub fn note_used(&mut self, now_ns: u64, used: &[(u32, u64)]) {
        for &(pid, bytes) in used {
            if let Some(process) = self.processes.get_mut(pid) {
                // With some kinds excluded, the rest is not known.
                if process.counted == KindSet::ALL {
                    let rest = bytes.saturating_sub(process.tracked_bytes());
                    process.outside.note(now_ns, rest);
                }
            }
        }
    }

    /// What was dropped because it would have taken too much time or memory.
    pub fn left_out(&self) -> Lost {
        self.limits.left_out
    }

    /// Dropped events by process.
    pub fn left_out_by_process(&self) -> impl Iterator<Item = UserLoss> {
        self.limits.lost()
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
        self.counts.add(call.row, u64::from(!call.captured));
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

    /// Applies `change` to the tensors of the process `pid`; it returns false if it drops something.
    fn keep_tensors(&mut self, pid: u32, change: impl FnOnce(&mut Process, &mut Changes) -> bool) {
        let mut changes = mem::take(&mut self.changes);
        let is_known = self.keep(pid, |process| change(process, &mut changes));
        self.changes = changes;
        self.limits.left_out.tensors += u64::from(!is_known);
    }

    /// Notes that the current live memory is the peak.
    pub(super) fn note_peak(&mut self, time_ns: u64) {
        self.peak_bytes = self.live_bytes;
        self.peak_ns = Some(time_ns);
        self.peaks = self.peaks.wrapping_add(1);
    }

    /// The blocks of process `pid` have events now and then only.
    pub fn count_by_census(&mut self, pid: u32) {
        self.keep(pid, |process| process.tensors.is_census = true);
    }

    /// Ends `pid`; without a time, its exit was not seen.
    pub fn end_at(&mut self, pid: u32, time_ns: Option<u64>) {
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
        process.sites.end(self.peaks);
        let gpu = process.totals.sums.gpu;
        self.live_bytes = self.live_bytes.saturating_sub(gpu.bytes);
        process.restore();
        let units = process.units;
        self.ended.push(process);
        if !self.is_of_file {
            self.limits.change(units, 0);
            self.ended.shrink(ended::MAX_SIZE);
        }
    }

    /// A checkpoint or restore of a process, if that is known.
    fn move_memory(&mut self, task: &Task, change: fn(&mut Process)) {
        if self.processes.get(task.pid).is_some() {
            self.account(task.pid, task.time_ns, change);
        }
    }

    fn end(&mut self, task: &Task) {
        self.processes.drop_early_stacks(task.pid);
        self.end_at(task.pid, Some(task.time_ns));
    }

    /// Updates incidents with a call that has returned: a failed request, or a successful one of a
    /// thread with an open incident.
    fn note_outcome(&mut self, call: &Call) {
        if incidents::is_refused(call) {
            self.processes.enter(call.pid);
            self.incidents.refused(call, &self.processes);
        } else if call.result == 0
            && call.function.op.allocates()
            && !call.captured
            && self.incidents.is_open(call.pid)
        {
            let who = (call.pid, call.tid);
            self.incidents.given(who, Some(call), call.end_ns);
        }
    }

    fn record_incidents(&mut self) {
        for row in self.incidents.take_changed() {
            self.changes.record(|| Change::Incident(Box::new(row)));
        }
    }

    /// The exported memory that the call opens or imports, if a traced process has exported it: under an IPC handle
    /// of 64 bytes.
    fn shared_by(&self, call: &Call) -> Option<Export> {
        let function = call.function;
        let opens = function.op == Op::ShareOpen || function.kind == MemoryKind::Imported;
        let detail = call.detail.as_deref().filter(|_| opens)?;
        self.shared.get(&detail.values).cloned()
    }

    fn export(&mut self, call: &Call) {
        let Some(process) = self.processes.get(call.pid) else {
            return;
        };
        let size = process.size_at(call.address);
        if let (Some(size_bytes), Some(detail)) = (size, &call.detail) {
            let exporter = Exporter {
                pid: process.pid,
                comm: process.comm.clone(),
                command: process.identity.command.clone(),
            };
            if self.shared.len() >= MAX_SHARED {
                self.shared.clear();
            }
            self.shared
                .insert(detail.values, (size_bytes, Arc::new(exporter)));
        }
    }
}
