//! Who holds which memory.
//!
//! Allocations are keyed by process and address, so that a free from any thread finds them. A
//! free takes away the allocation that lived when the free was *entered*, never a newer one: the
//! driver may hand a freed address to another thread before the free has returned.

use std::collections::BTreeMap;
use std::rc::Rc;

use hashbrown::HashMap;

use super::addresses::{Addresses, Whereabouts};
use super::allocation::key;
use super::calls::Effect;
use super::change::{Change, Changes};
use super::living::Living;
use super::process::Process;
use super::totals::{Sums, Total};
use super::{Identity, Site};
use gpuprobe_cuda::{EXTRA, FUNCTIONS, KindSet, MemoryKind, Op};
use gpuprobe_model::event::{AboutMemory, Call, Event, Task};
use gpuprobe_model::identity::DeviceIdentity;
use gpuprobe_model::stack::CallStack;

/// What was called, over all processes since the start.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Successful allocating calls.
    pub alloc_calls: u64,
    /// Successful frees of something; a free of a null pointer does nothing and is not counted.
    pub free_calls: u64,
    /// Calls that returned an error.
    pub failed_calls: u64,
    /// Of the frees, those of memory that was not seen to be allocated.
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

/// Ended processes without leaks that are still listed in the final report.
const MAX_CLEAN_ENDED: usize = 1024;
/// The same of those with leaks: the largest are kept, and the sums of all.
const MAX_LEAKED_ENDED: usize = 4096;
/// What all of those hold, before the oldest are forgotten that a report has shown: a GB or less.
/// Those that none has shown may hold twice as much, and the last one what it likes.
const MAX_ENDED_ALLOCATIONS: usize = 1 << 24;

/// Devices that sums of ended processes are about; those of further ones are about devices of these
/// numbers.
const MAX_FORGOTTEN_DEVICES: usize = 1024;

/// Sums of ended processes that are listed no more.
#[derive(Debug, Default)]
pub struct Forgotten {
    /// What they had not freed.
    pub sums: Sums,
    /// The same by kind.
    pub kinds: BTreeMap<MemoryKind, Total>,
    /// GPU memory by the number of the device in the process, and what that stands for.
    pub devices: Vec<(Option<u16>, DeviceIdentity, Total)>,
}

impl Forgotten {
    fn add(&mut self, process: &Process) {
        self.sums.merge(process.totals.sums);
        for (kind, total) in process.totals.kinds() {
            self.kinds.entry(kind).or_default().merge(total);
        }
        for (number, total) in process.devices() {
            let device = number.map(|n| process.identity.device(n));
            let device = device.unwrap_or_default();
            let is_full = self.devices.len() >= MAX_FORGOTTEN_DEVICES;
            if is_full && self.sum_of(number, &device).is_none() {
                self.add_to(number, DeviceIdentity::default(), total);
            } else {
                self.add_to(number, device, total);
            }
        }
    }

    fn add_to(&mut self, number: Option<u16>, device: DeviceIdentity, total: Total) {
        match self.sum_of(number, &device) {
            Some(sum) => sum.merge(total),
            None => self.devices.push((number, device, total)),
        }
    }

    fn sum_of(&mut self, number: Option<u16>, device: &DeviceIdentity) -> Option<&mut Total> {
        let mut sums = self.devices.iter_mut();
        let found = sums.find(|(n, d, _)| *n == number && d == device);
        found.map(|(_, _, sum)| sum)
    }
}

/// An ended process, and whether a report has shown it.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) process: Process,
    pub(super) reported: bool,
}

/// The ledger.
#[derive(Debug, Default)]
pub struct Ledger {
    pub(super) living: Living,
    pub(super) ended: Vec<Ended>,
    pub(super) clean_ended: usize,
    /// What the ended ones hold.
    pub(super) ended_allocations: usize,
    pub(super) forgotten: Forgotten,
    pub(super) counts: Counts,
    pub(super) live_bytes: u64,
    pub(super) peak_bytes: u64,
    /// When that was, and how often there was a new highest point.
    pub(super) peak_ns: Option<u64>,
    pub(super) peaks: u32,
    /// It is fed with the rows of a file.
    pub(super) is_of_rows: bool,
    /// Bytes of what processes exported for others, by the 64 bytes that name it.
    pub(super) shared: HashMap<[u64; EXTRA], u64>,
    pub(super) left_out: u64,
    /// What events change.
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
            Event::Call(call) => self.call(call),
            Event::Process(task) => {
                let process = self.living.enter(task.pid);
                let identity = process.uid.is_none().then(|| identity(task));
                process.introduce(task, identity);
            }
            Event::Thread(task) => self.living.enter(task.pid).introduce_thread(task),
            Event::ThreadExit(task) => {
                if let Some(process) = self.living.get_mut(task.pid) {
                    process.end_thread(task.tid);
                }
            }
            Event::Exit(task) | Event::Exec(task) => self.end(task),
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
        self.living.learn_stack(pid, number, stack);
    }

    /// What was called so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What was not entered as it would have taken too much time or memory: calls, and nodes of
    /// graphs.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The most bytes that living processes held together.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// When that was, `CLOCK_MONOTONIC` nanoseconds; `None` if nothing was ever held.
    pub fn peak_ns(&self) -> Option<u64> {
        self.peak_ns
    }

    /// What was live at a call site of `process` when the most was held.
    pub fn at_peak(&self, process: &Process, site: &Site) -> Sums {
        process.sites.at_peak(site, self.peaks)
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
        let shown = move |ended: &&Ended| all || !ended.reported;
        self.ended.iter().filter(shown).map(|ended| &ended.process)
    }

    /// Sums of ended processes of which [`Self::ended`] tells no more.
    pub fn forgotten(&self) -> &Forgotten {
        &self.forgotten
    }

    /// Notes that the ended processes have been shown.
    pub fn mark_reported(&mut self) {
        for ended in &mut self.ended {
            ended.reported = true;
        }
        if let Some(addresses) = &mut self.addresses {
            addresses.forget_old();
        }
    }

    /// Ends `pid`, whose end was not seen.
    pub fn end_unseen(&mut self, pid: u32) {
        self.end_at(pid, None);
    }

    pub(super) fn end_at(&mut self, pid: u32, time_ns: Option<u64>) {
        if let Some(process) = self.living.remove(pid) {
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
            let effect = process.apply(call, |name| shared.get(name).copied());
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

    /// Has `change` change the living process `pid`, which is known, and notes what that means for the
    /// sums of all.
    pub(super) fn account<T>(
        &mut self,
        pid: u32,
        time_ns: u64,
        change: impl FnOnce(&mut Process) -> T,
    ) -> T {
        let process = self.living.enter(pid);
        let before = process.totals.sums.gpu.bytes;
        process.sites.after_peak(self.peaks);
        std::mem::swap(&mut process.changes, &mut self.changes);
        let effect = change(process);
        std::mem::swap(&mut process.changes, &mut self.changes);
        self.left_out += process.take_left_out();
        let after = process.totals.sums.gpu.bytes;
        self.live_bytes = self.live_bytes.saturating_sub(before).saturating_add(after);
        if self.live_bytes > self.peak_bytes {
            self.note_peak(time_ns);
        }
        effect
    }

    /// What is live now is the highest point.
    pub(super) fn note_peak(&mut self, time_ns: u64) {
        self.peak_bytes = self.live_bytes;
        self.peak_ns = Some(time_ns);
        self.peaks = self.peaks.wrapping_add(1);
    }

    fn export(&mut self, call: &Call) {
        let process = self.living.get(call.pid);
        let size = process.and_then(|p| p.size_at(call.address));
        if let (Some(size), Some(detail)) = (size, &call.detail) {
            if self.shared.len() >= MAX_SHARED {
                self.shared.clear();
            }
            self.shared.insert(detail.values, size);
        }
    }

    fn end(&mut self, task: &Task) {
        self.living.forget_early(task.pid);
        self.end_at(task.pid, Some(task.time_ns));
    }

    fn retire(&mut self, mut process: Process) {
        process.exited = true;
        process.sites.after_peak(self.peaks);
        process.sites.end();
        self.live_bytes = self
            .live_bytes
            .saturating_sub(process.totals.sums.gpu.bytes);
        if process.holds_nothing() {
            self.clean_ended += 1;
        }
        self.ended_allocations += process.live.len();
        self.ended.push(Ended {
            process,
            reported: false,
        });
        if self.is_of_rows {
            return;
        }
        if self.ended_allocations > MAX_ENDED_ALLOCATIONS {
            self.forget_large_ended(MAX_ENDED_ALLOCATIONS);
        }
        if self.clean_ended > MAX_CLEAN_ENDED * 2 {
            self.forget_clean_ended();
        }
        if self.ended.len() - self.clean_ended > MAX_LEAKED_ENDED * 2 {
            self.forget_leaked_ended();
        }
    }

    /// Drops the smaller half of the ended processes that leaked something.
    fn forget_leaked_ended(&mut self) {
        let leaked = |ended: &Ended| {
            let size = ended.process.totals.sums.all().bytes;
            (!ended.process.holds_nothing()).then_some(size)
        };
        let mut sizes: Vec<_> = self.ended.iter().filter_map(leaked).collect();
        sizes.sort_unstable();
        let mut surplus = sizes.len() - MAX_LEAKED_ENDED;
        let largest_dropped = sizes[surplus - 1];
        self.ended.retain(|ended| {
            let small = leaked(ended).is_some_and(|size| size <= largest_dropped);
            let drop = surplus > 0 && small;
            if drop {
                surplus -= 1;
                self.ended_allocations -= ended.process.live.len();
                self.forgotten.add(&ended.process);
            }
            !drop
        });
    }

    /// Drops the oldest ended processes until all of them hold `most` allocations, or twice as many
    /// where no report has shown them.
    fn forget_large_ended(&mut self, most: usize) {
        for (reported_only, most) in [(true, most), (false, 2 * most)] {
            let last = self.ended.len().saturating_sub(1);
            let mut place = 0;
            self.ended.retain(|ended| {
                let holds = ended.process.live.len();
                let may = place < last && holds > 0 && (ended.reported || !reported_only);
                place += 1;
                let drop = may && self.ended_allocations > most;
                if drop {
                    self.ended_allocations -= holds;
                    self.forgotten.add(&ended.process);
                }
                !drop
            });
        }
    }

    /// Drops the older half of the ended processes that leaked nothing.
    fn forget_clean_ended(&mut self) {
        let mut surplus = self.clean_ended - MAX_CLEAN_ENDED;
        self.clean_ended = MAX_CLEAN_ENDED;
        self.ended.retain(|ended| {
            let drop = surplus > 0 && ended.process.holds_nothing();
            surplus -= usize::from(drop);
            !drop
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::task;

    /// A ledger with ended processes that hold so many allocations of 8 bytes each.
    fn ended(holding: &[u64]) -> Ledger {
        let mut ledger = Ledger::default();
        let row = (0u16..)
            .zip(FUNCTIONS)
            .find(|(_, f)| f.symbol == "cudaMalloc");
        let (row, function) = row.unwrap();
        for (pid, &count) in (1..).zip(holding) {
            let begun = Event::Process(task(pid, pid, 0));
            ledger.apply(&begun, |_| Identity::default());
            for address in 1..=count {
                ledger.apply(
                    &Event::Call(Call {
                        pid,
                        tid: pid,
                        row,
                        function,
                        result: 0,
                        captured: false,
                        start_ns: address,
                        end_ns: address,
                        address: address << 8,
                        size_bytes: 8,
                        device: Some(0),
                        context: 0,
                        stack: 0,
                        detail: None,
                    }),
                    |_| Identity::default(),
                );
            }
            ledger.apply(&Event::Exit(task(pid, pid, 1000)), |_| Identity::default());
        }
        ledger
    }

    fn kept(ledger: &Ledger) -> Vec<u32> {
        ledger.ended(true).map(|process| process.pid).collect()
    }

    #[test]
    fn ended_processes_that_hold_very_much_are_kept_as_sums() {
        let mut ledger = ended(&[50, 60, 0, 70]);
        assert_eq!(ledger.ended_allocations, 180);
        // Nobody has seen them.
        ledger.forget_large_ended(100);
        assert_eq!(kept(&ledger), [1, 2, 3, 4]);
        ledger.mark_reported();
        ledger.forget_large_ended(130);
        assert_eq!(kept(&ledger), [2, 3, 4]);
        let sums = &ledger.forgotten().sums;
        assert_eq!((sums.gpu.bytes, ledger.ended_allocations), (400, 130));
        // The last one stays, whatever it holds.
        ledger.forget_large_ended(1);
        assert_eq!(kept(&ledger), [3, 4]);
        let mut unseen = ended(&[50, 60, 70]);
        unseen.forget_large_ended(40);
        assert_eq!(kept(&unseen), [3]);
    }
}
