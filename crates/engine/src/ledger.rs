//! Who holds which memory.
//!
//! Allocations are keyed by process and address, so that a free from any thread finds them. A
//! free takes away the allocation that lived when the free was *entered*, never a newer one: the
//! driver may hand a freed address to another thread before the free has returned.

use std::rc::Rc;

use hashbrown::HashMap;

use super::addresses::{Addresses, Whereabouts};
use super::allocation::key;
use super::calls::Effect;
use super::change::{Change, Changes};
use super::ended::{EndedProcesses, Forgotten};
use super::imports::Export;
use super::incidents::{self, Asked, GivenUp, Held, Incident, Incidents};
use super::living::Living;
use super::process::Process;
use super::shares::{Kept, Shares};
use super::totals::Sums;
use super::{Identity, Site};
use gpuprobe_cuda::{EXTRA, FUNCTIONS, KindSet, Op};
use gpuprobe_model::event::{AboutMemory, Call, Event, OutOfMemory, Task};
use gpuprobe_model::stack::CallStack;
use gpuprobe_model::{GpuUse, UserLoss};

/// Counts of calls, over all processes since the start.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Successful allocating calls.
    pub alloc_calls: u64,
    /// Successful frees of something; a free of a null pointer does nothing and is not counted.
    pub free_calls: u64,
    /// Calls that returned an error.
    pub failed_calls: u64,
    /// Frees among them of memory that was not seen to be allocated.
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

/// The ledger.
#[derive(Debug, Default)]
pub struct Ledger {
    pub(super) living: Living,
    pub(super) ended: EndedProcesses,
    pub(super) counts: Counts,
    pub(super) live_bytes: u64,
    pub(super) peak_bytes: u64,
    /// When that was, and how often there was a new highest point.
    pub(super) peak_ns: Option<u64>,
    pub(super) peaks: u32,
    /// It is fed with the rows of a file.
    pub(super) is_of_rows: bool,
    /// What processes exported for others, by the 64 bytes that name it.
    pub(super) shared: HashMap<[u64; EXTRA], Export>,
    pub(super) left_out: u64,
    pub(super) tensors_left_out: u64,
    pub(super) stacks_left_out: u64,
    /// What is kept of whose processes.
    pub(super) shares: Shares,
    pub(super) incidents: Incidents,
    /// Changes that events make.
    pub(super) changes: Changes,
    /// Where addresses are, if anybody wants to know.
    pub(super) addresses: Option<Addresses>,
}

/// Exports that are remembered; a program may export the same memory over and over.
const MAX_SHARED: usize = 65_536;

impl Ledger {
    /// A ledger whose sums and listings are about some kinds only. It keeps the others all the
    /// same.
    pub fn counting(counted: KindSet) -> Self {
        Self {
            living: Living::counting(counted),
            ..Self::default()
        }
    }

    /// From now on, [`Self::find_address`] knows what is allocated.
    pub fn index_addresses(&mut self) {
        if self.addresses.is_none() {
            self.addresses = Some(Addresses::default());
        }
    }

    /// Where `address` of `pid` was at that time, if what was allocated tells. An address in a
    /// device's memory that was freed since is known for some seconds.
    pub fn find_address(&self, pid: u32, address: u64, at_ns: u64) -> Option<Whereabouts> {
        let addresses = self.addresses.as_ref()?;
        addresses.find(pid, self.living.get(pid), address, at_ns)
    }

    /// Enters what tells where addresses are, for [`Self::find_address`] only: nobody reports on
    /// this ledger, or is told what calls do.
    pub fn apply_unreported(&mut self, event: &Event) {
        self.index_addresses();
        match event {
            Event::Call(call) => {
                let are_wanted = std::mem::take(&mut self.changes.are_wanted);
                self.call(call);
                self.changes.are_wanted = are_wanted;
            }
            Event::Exit(task) | Event::Exec(task) => self.end(task),
            _ => {}
        }
    }

    /// Enters an event. `identity` says who a process is; it is asked once for
    /// each process.
    pub fn apply(&mut self, event: &Event, identity: impl FnOnce(&Task) -> Identity) {
        match event {
            Event::Call(call) => {
                self.call(call);
                self.note_outcome(call);
            }
            Event::Process(task) => {
                let process = self.living.enter(task.pid);
                let identity = process.uid.is_none().then(|| identity(task));
                let (uid, kept) = (process.uid, process.account.kept);
                process.introduce(task, identity);
                self.shares.change(uid, kept, Kept::default());
                self.shares.change(process.uid, Kept::default(), kept);
            }
            Event::Thread(task) => self.keep(task.pid, |process| process.introduce_thread(task)),
            Event::ThreadExit(task) => {
                if let Some(process) = self.living.get_mut(task.pid) {
                    process.end_thread(task.tid);
                }
            }
            Event::Exit(task) | Event::Exec(task) => self.end(task),
            Event::Tensor(tensor) => {
                let is_known = self.keep(tensor.pid, |process| process.apply_tensor(tensor));
                self.tensors_left_out += u64::from(!is_known);
                if !tensor.is_free && self.incidents.is_open(tensor.pid) {
                    let who = (tensor.pid, tensor.tid);
                    self.incidents.given(who, None, tensor.time_ns);
                    self.tell_incidents();
                }
            }
            Event::OutOfMemory(told) => self.gave_up(told),
            Event::Request(request) => {
                self.keep(request.pid, |process| process.apply_request(request));
            }
            Event::Kernel(_) | Event::Launch(_) | Event::Copy(_) | Event::Activity(_) => {}
        }
    }

    /// Whether a process has so much memory in so many pieces that to find one takes a while.
    pub fn is_large(&self) -> bool {
        self.living().any(|process| process.live.is_large())
    }

    /// These calls will be applied next: what is needed for that is brought near.
    pub fn expect(&self, calls: &[AboutMemory]) {
        for calls in calls.chunk_by(|a, b| a.pid == b.pid) {
            let Some(process) = self.living.get(calls[0].pid) else {
                continue;
            };
            process.live.expect(calls.iter().filter_map(|call| {
                let space = gpuprobe_cuda::function(call.row)?.kind.space();
                Some(key(space, call.address))
            }));
        }
    }

    /// From now on, calls of `pid` whose `stack` is `number` were made with `stack`; before the
    /// first of them, and perhaps before anything else of the process. Calls with the number 0, or
    /// one that was never learnt, are told apart by their function only.
    ///
    /// A process forgets its numbers when it ends or runs another program.
    pub fn learn_stack(&mut self, pid: u32, number: u64, stack: Rc<CallStack>) {
        if self.living.get(pid).is_none() {
            self.living.learn_early(pid, number, stack);
            return;
        }
        self.keep(pid, |process| process.sites.learn(number, stack));
    }

    /// Counts of the calls so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The number of calls and nodes of graphs that were not entered, as that would have taken too
    /// much time or memory.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The number of tensors that were not entered: their device's number is too high to be one.
    pub fn tensors_left_out(&self) -> u64 {
        self.tensors_left_out
    }

    /// The number of stacks that were not told apart, as that would have taken too much memory.
    pub fn stacks_left_out(&self) -> u64 {
        self.stacks_left_out
    }

    /// What was left out, by user and process.
    pub fn left_out_by_user(&self) -> impl Iterator<Item = UserLoss> {
        self.shares.lost()
    }

    /// The most bytes that living processes held together.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// When that was, `CLOCK_MONOTONIC` nanoseconds; `None` if nothing was ever held.
    pub fn peak_ns(&self) -> Option<u64> {
        self.peak_ns
    }

    /// Memory that was live at a call site of `process` when the most was held.
    pub fn at_peak(&self, process: &Process, site: &Site) -> Sums {
        process.sites.at_peak(site, self.peaks)
    }

    /// Requests for memory that were refused.
    pub fn incidents(&self) -> &Incidents {
        &self.incidents
    }

    /// What the host says of the GPU whose memory was refused in incident `id`.
    pub fn learn_incident(&mut self, id: u64, gpu: GpuUse) {
        self.incidents.learn(id, gpu);
    }

    /// Living processes, in no particular order.
    pub fn living(&self) -> impl Iterator<Item = &Process> {
        self.living.iter()
    }

    /// The living process with this id.
    pub fn process_of(&self, pid: u32) -> Option<&Process> {
        self.living.get(pid)
    }

    /// Ended processes in the order of their ends: those that no report has shown yet, or all.
    pub fn ended(&self, all: bool) -> impl Iterator<Item = &Process> {
        self.ended.listed(all)
    }

    /// Sums of ended processes of which [`Self::ended`] tells no more.
    pub fn forgotten(&self) -> &Forgotten {
        self.ended.forgotten()
    }

    /// Notes that the ended processes have been shown.
    pub fn mark_reported(&mut self) {
        self.ended.mark_reported();
        self.incidents.mark_reported();
        if let Some(addresses) = &mut self.addresses {
            addresses.forget_old();
        }
    }

    /// Ends `pid`, whose end was not seen.
    pub fn end_unseen(&mut self, pid: u32) {
        self.end_at(pid, None);
    }

    pub(super) fn end_at(&mut self, pid: u32, time_ns: Option<u64>) {
        self.incidents.end(pid, time_ns);
        self.tell_incidents();
        if let Some(mut process) = self.living.remove(pid) {
            process.ended_ns = time_ns;
            if let Some(addresses) = &mut self.addresses {
                addresses.end_process(&process, time_ns);
            }
            self.retire(process);
        }
    }

    fn call(&mut self, call: &Call) {
        if call.result != 0 {
            self.counts.failed_calls += u64::from(call.function.op.is_memory());
            // A capture that was invalidated is over too.
            if call.function.op == Op::CaptureEnd
                && let Some(process) = self.living.get_mut(call.pid)
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
        let (known, are_wanted) = (self.changes.list.len(), self.changes.are_wanted);
        self.changes.are_wanted |= self.addresses.is_some();
        let shared = std::mem::take(&mut self.shared);
        let effect = self.account(call.pid, call.end_ns, |process| {
            let effect = process.apply(call, |name| shared.get(name).cloned());
            if are_wanted {
                process.finish_changes();
            }
            effect
        });
        self.shared = shared;
        self.changes.are_wanted = are_wanted;
        if let Some(addresses) = &mut self.addresses {
            addresses.apply(call, &self.changes.list[known..]);
            if !are_wanted {
                self.changes.list.truncate(known);
            }
        }
        let counts = &mut self.counts;
        match effect {
            Effect::Allocated => counts.alloc_calls += 1,
            Effect::Freed => counts.free_calls += 1,
            Effect::FreedUnknown => {
                self.changes.tell(|| Change::UnknownFree(call.address));
                counts.free_calls += 1;
                counts.unknown_frees += 1;
            }
            Effect::FreedNull => counts.null_frees += 1,
            Effect::Other => {}
        }
    }

    /// Notes what a call that has returned means for requests that were refused: itself, or those of its
    /// thread.
    fn note_outcome(&mut self, call: &Call) {
        if incidents::is_refused(call) {
            self.refused(call);
        } else if call.result == 0
            && call.function.op.allocates()
            && !call.captured
            && self.incidents.is_open(call.pid)
        {
            let who = (call.pid, call.tid);
            self.incidents.given(who, Some(call.into()), call.end_ns);
            self.tell_incidents();
        }
    }

    fn refused(&mut self, call: &Call) {
        self.living.enter(call.pid);
        let living = &self.living;
        let Some(process) = living.get(call.pid) else {
            return;
        };
        let (asked, when) = (Asked::of(call, process), (call.tid, call.end_ns));
        let incident = |id, asked| Incident::new(id, process, when, asked).among(living.iter());
        self.incidents.refused(call.pid, when, asked, incident);
        self.tell_incidents();
    }

    /// The allocator of a framework has given up.
    fn gave_up(&mut self, told: &OutOfMemory) {
        self.living.enter(told.pid);
        let living = &self.living;
        let Some(process) = living.get(told.pid) else {
            return;
        };
        let when = (told.tid, told.time_ns);
        let incident = |id| {
            let asked = Asked::told(told, process);
            Incident::new(id, process, when, asked).among(living.iter())
        };
        let held = || Held::of(process, Some(told.device), false);
        let given_up = GivenUp::of(told, process);
        self.incidents.gave_up(told, given_up, held, incident);
        self.tell_incidents();
    }

    fn tell_incidents(&mut self) {
        for row in self.incidents.take_changed() {
            self.changes.tell(|| Change::Incident(Box::new(row)));
        }
    }

    /// Has `change` change the living process `pid`, which is known, and notes what that means for the
    /// sums of all.
    pub(super) fn account<T>(
        &mut self,
        pid: u32,
        time_ns: u64,
        change: impl FnOnce(&mut Process) -> T,
    ) -> T {
        let (peaks, mut changes) = (self.peaks, std::mem::take(&mut self.changes));
        let (effect, before, after) = self.keep(pid, |process| {
            let before = process.totals.sums.gpu.bytes;
            process.sites.after_peak(peaks, time_ns);
            std::mem::swap(&mut process.changes, &mut changes);
            let effect = change(process);
            std::mem::swap(&mut process.changes, &mut changes);
            (effect, before, process.totals.sums.gpu.bytes)
        });
        self.changes = changes;
        self.live_bytes = self.live_bytes.saturating_sub(before).saturating_add(after);
        if self.live_bytes > self.peak_bytes {
            self.note_peak(time_ns);
        }
        effect
    }

    /// Has `change` change the living process `pid`, which may be new, as far as there is room.
    fn keep<T>(&mut self, pid: u32, change: impl FnOnce(&mut Process) -> T) -> T {
        let process = self.living.enter(pid);
        if self.is_of_rows {
            return change(process);
        }
        process.set_full(self.shares.full(process.uid));
        let done = change(process);
        self.shares.account(process);
        let [calls, tensors, stacks] = process.take_all_left_out();
        if calls + tensors + stacks > 0 {
            self.left_out += calls;
            self.tensors_left_out += tensors;
            self.stacks_left_out += stacks;
            self.shares.lose(process, "memory", calls);
            self.shares.lose(process, "tensors", tensors);
            self.shares.lose(process, "stacks", stacks);
        }
        done
    }

    /// Notes that the memory that is live now is the highest point.
    pub(super) fn note_peak(&mut self, time_ns: u64) {
        self.peak_bytes = self.live_bytes;
        self.peak_ns = Some(time_ns);
        self.peaks = self.peaks.wrapping_add(1);
    }

    fn export(&mut self, call: &Call) {
        let Some(process) = self.living.get_mut(call.pid) else {
            return;
        };
        let size = process.size_at(call.address);
        if let (Some(size_bytes), Some(detail)) = (size, &call.detail) {
            let exporter = process.as_exporter();
            if self.shared.len() >= MAX_SHARED {
                self.shared.clear();
            }
            let export = Export {
                size_bytes,
                exporter,
            };
            self.shared.insert(detail.values, export);
        }
    }

    fn end(&mut self, task: &Task) {
        self.living.forget_early(task.pid);
        self.end_at(task.pid, Some(task.time_ns));
    }

    fn retire(&mut self, mut process: Process) {
        process.exited = true;
        if !self.is_of_rows {
            let kept = process.account.kept;
            self.shares.change(process.uid, kept, Kept::default());
        }
        let ended_ns = process.ended_ns.unwrap_or(0);
        process.sites.after_peak(self.peaks, ended_ns);
        process.sites.end();
        self.live_bytes = self
            .live_bytes
            .saturating_sub(process.totals.sums.gpu.bytes);
        self.ended.push(process);
        if !self.is_of_rows {
            self.ended.forget_surplus();
        }
    }
}
