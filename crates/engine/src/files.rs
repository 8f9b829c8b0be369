//! The ledger of a file: it drops nothing, and is fed with the memory events of exports, too.

use super::allocation::{AllocationPlace, NewAllocation};
use super::change::Change;
use super::ended::EndedProcesses;
use super::process::{Process, Variable};
use super::{Allocation, Counts, Ledger};
use gpuprobe_cuda::{FUNCTIONS, KindSet, Op};
use gpuprobe_model::event::MemoryEvent;

impl Ledger {
    /// A ledger for the events of a file, with sums and listings of the memory kinds `counted`: it
    /// drops nothing.
    pub fn of_file(counted: KindSet) -> Self {
        Self {
            is_of_file: true,
            ..Self::counting(counted)
        }
    }

    /// Applies an allocation or free of an export.
    pub(super) fn memory(&mut self, event: &MemoryEvent) {
        if event.is_free {
            // A superseded allocation is freed without a call of its own.
            let function = FUNCTIONS.get(usize::from(event.row));
            let is_plain = function.is_none_or(|function| function.op == Op::Free);
            let is_known = self.processes.get(event.pid).is_some()
                && self
                    .account(event.pid, event.time_ns, |process| {
                        process.remove(event.space, event.address)
                    })
                    .is_some();
            if !is_known {
                self.counts.unknown_frees += 1;
                self.changes.record(|| Change::UnknownFree(event.address));
            }
            self.plain_frees += u64::from(is_known && is_plain);
            return;
        }
        self.account(event.pid, event.time_ns, |process| {
            let new = NewAllocation {
                address: event.address,
                size_bytes: event.bytes,
                end_ns: event.time_ns,
                tid: event.tid,
                row: event.row,
                site: process.sites.site(event.stack, event.row),
                kind: event.kind,
                space: event.space,
                place: AllocationPlace::from(event.device),
                slot: u8::MAX,
            };
            if let Some(name) = &event.variable {
                let name = Some(name.to_string());
                process
                    .variables
                    .insert(event.address, Variable { module: 0, name });
            }
            process.add(Allocation::new(&new));
        });
    }

    /// Adds calls of the function in `row` of the table, which the events of an export do not
    /// count: those that succeeded and those that failed.
    pub fn add_calls(&mut self, row: u16, succeeded: u64, failed: u64) {
        let function = gpuprobe_cuda::function(row);
        let Some(function) = function.filter(|f| f.op.is_memory()) else {
            return;
        };
        let counts = &mut self.counts;
        let succeeded_if = |is_of: bool| if is_of { succeeded } else { 0 };
        counts.failed_calls += failed;
        counts.add(row, succeeded);
        counts.alloc_calls += succeeded_if(function.op.allocates());
        counts.free_calls += succeeded_if(function.op.frees());
        if function.op == Op::Free {
            // Plain frees of neither known nor unknown memory are of null pointers.
            let of_something = self.plain_frees.saturating_add(counts.unknown_frees);
            let of_nothing = succeeded.saturating_sub(of_something);
            self.plain_frees = of_something.saturating_sub(succeeded);
            counts.null_frees += of_nothing;
            counts.free_calls -= of_nothing;
        }
    }

    /// All processes, so that a caller can set their names.
    pub fn processes_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.processes.iter_mut().chain(self.ended.iter_mut())
    }

    /// Resets peaks, totals and counts: the memory that is live now becomes the peak, and the call
    /// sites have allocated nothing yet.
    pub fn reset_sums(&mut self, time_ns: u64) {
        self.counts = Counts::default();
        self.plain_frees = 0;
        self.note_peak(time_ns);
        for process in self.processes.iter_mut() {
            process.peak_bytes = process.totals.sums.gpu.bytes;
            process.peak_ns = Some(time_ns);
            process.sites.begin_again();
        }
    }

    /// Forgets the processes that have ended, and those that hold nothing.
    pub fn keep_holders(&mut self) {
        self.ended = EndedProcesses::default();
        self.processes.keep_holders();
    }
}
