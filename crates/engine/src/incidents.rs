//! Out-of-memory incidents: failed requests for memory, and their outcomes.
//!
//! The first failed request on a thread opens an incident. Further failures of the same request on
//! that thread are attempts of the same incident: PyTorch frees its cache and tries again. The
//! incident is settled when the thread is given as much memory, makes another request, when an
//! allocator gives up, or when the process ends. A program may fail a million requests a second:
//! beyond a rate limit they open no incident, and are counted in the last one of the process.

mod held;
mod incident;
#[cfg(test)]
mod tests;

pub use incident::{Incident, IncidentOutcome, IncidentRow, MemoryRequest};
use std::collections::VecDeque;

use super::process::Process;
use super::process_table::ProcessTable;
use gpuprobe_cuda::OUT_OF_MEMORY;
use gpuprobe_model::GpuUse;
use gpuprobe_model::event::{Call, OutOfMemory};

pub use held::{HeldByAllocator, HeldByProcess, HeldSite, Other};
use held::{asked_bytes, is_of_host};

/// Incidents kept before the oldest are dropped.
const MAX_KEPT: usize = 256;
/// Incidents opened within [`RATE_NS`] at most: of one process, and of all.
const AT_ONCE: usize = 8;
const ALL_AT_ONCE: usize = 64;
const RATE_NS: u64 = 8_000_000_000;
/// A later request is not a retry. PyTorch empties its cache before it retries, which takes up to a
/// second for a GPU full of small segments.
const RETRY_WITHIN_NS: u64 = 10_000_000_000;
/// Other threads may go on for this long after a failed request that ends the process.
const ENDS_WITHIN_NS: u64 = 1_000_000_000;

/// Whether `call` failed for lack of memory.
pub(super) fn is_refused(call: &Call) -> bool {
    call.result == OUT_OF_MEMORY && call.function.op.allocates()
}

/// All incidents of a run.
#[derive(Debug, Default)]
pub struct Incidents {
    kept: VecDeque<Incident>,
    /// Number of incidents so far, kept or dropped.
    pub count: u64,
    /// Number of failed calls so far.
    pub refused_calls: u64,
    /// Number of kept incidents with an outcome that may change.
    open: usize,
    /// Incidents opened or updated since the last [`Self::take_changed`].
    changed: Vec<IncidentRow>,
}

impl Incidents {
    /// The incidents that are kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Incident> {
        self.kept.iter()
    }

    /// The incidents that changed since the last report, or all.
    pub fn listed(&self, all: bool) -> impl Iterator<Item = &Incident> {
        self.iter().filter(move |one| all || !one.is_reported)
    }

    /// The incident with this number, if it is kept.
    pub fn get(&self, id: u64) -> Option<&Incident> {
        self.kept.get(self.place(id)?)
    }

    fn place(&self, id: u64) -> Option<usize> {
        let first = self.kept.front()?.id;
        usize::try_from(id.checked_sub(first)?).ok()
    }

    /// Sets the memory use of the GPU that could not satisfy the request of incident `id`.
    pub fn learn(&mut self, id: u64, gpu: GpuUse) {
        if let Some(incident) = self.get_mut(id) {
            incident.gpu = Some(Box::new(gpu));
            incident.is_reported = false;
        }
    }

    pub(super) fn mark_reported(&mut self) {
        for incident in &mut self.kept {
            incident.is_reported = true;
        }
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut Incident> {
        let place = self.place(id)?;
        self.kept.get_mut(place)
    }

    /// The incident of this thread with an outcome that may change.
    fn open_of(&self, pid: u32, tid: u32) -> Option<u64> {
        let found = self.open_in(pid).find(|incident| incident.tid == tid);
        found.map(|incident| incident.id)
    }

    /// The incidents of this process with an outcome that may change.
    fn open_in(&self, pid: u32) -> impl Iterator<Item = &Incident> {
        let all = self.kept.iter().filter(|_| self.open > 0);
        all.filter(move |incident| incident.pid == pid && !incident.outcome.is_final())
    }

    /// Records a failed call.
    pub(super) fn refused(&mut self, call: &Call, processes: &ProcessTable) {
        let Some(process) = processes.get(call.pid) else {
            return;
        };
        let (pid, tid, time_ns) = (call.pid, call.tid, call.end_ns);
        let asked = MemoryRequest::of(call);
        self.refused_calls += 1;
        let open = self.open_of(pid, tid);
        if let Some(known) = open.and_then(|id| self.get_mut(id))
            && known.is_same(&asked, time_ns)
        {
            known.attempts += 1;
            known.last_ns = time_ns;
            known.is_reported = false;
            let row = known.attempts.is_power_of_two().then(|| known.row());
            self.changed.extend(row);
            return;
        }
        if let Some(begun) = self.begin(process, processes, (tid, time_ns), asked) {
            let row = begun.row();
            self.changed.push(row);
            return;
        }
        if let Some(known) = self.kept.iter_mut().rev().find(|one| one.pid == pid) {
            known.repeats += 1;
            known.is_reported = false;
            let row = known.repeats.is_power_of_two().then(|| known.row());
            self.changed.extend(row);
        }
    }

    /// Opens an incident of `process`, if the rate limits allow it.
    fn begin(
        &mut self,
        process: &Process,
        processes: &ProcessTable,
        (tid, time_ns): (u32, u64),
        asked: MemoryRequest,
    ) -> Option<&mut Incident> {
        let pid = process.pid;
        let is_recent = |one: &&Incident| one.time_ns.saturating_add(RATE_NS) > time_ns;
        let recent = self.kept.iter().filter(is_recent);
        let of_process = recent.clone().filter(|one| one.pid == pid);
        if of_process.count() >= AT_ONCE || recent.count() >= ALL_AT_ONCE {
            return None;
        }
        self.count += 1;
        let id = self.count;
        // The thread has made another request.
        if let Some(before) = self.open_of(pid, tid) {
            self.settle(before, IncidentOutcome::Continued, time_ns);
        }
        if self.kept.len() >= MAX_KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.open -= usize::from(!oldest.outcome.is_final());
        }
        let incident = Incident::new(id, process, (tid, time_ns), asked);
        self.kept.push_back(incident.among(processes.iter()));
        self.open += 1;
        self.kept.back_mut()
    }

    /// Records that the allocator of a framework gave up: in the pending incident, or in a new one if no CUDA
    /// call failed before.
    pub(super) fn gave_up(&mut self, oom: &OutOfMemory, processes: &ProcessTable) {
        let Some(process) = processes.get(oom.pid) else {
            return;
        };
        let open = self.open_of(oom.pid, oom.tid);
        let pending = open
            .and_then(|id| self.get_mut(id))
            .filter(|known| known.outcome == IncidentOutcome::Pending);
        let known = match pending {
            Some(known) => {
                known.held = HeldByProcess::of(process, oom.device, false);
                known
            }
            None => {
                let asked = MemoryRequest::reported(oom);
                match self.begin(process, processes, (oom.tid, oom.time_ns), asked) {
                    Some(begun) => begun,
                    None => return,
                }
            }
        };
        let stack = || process.sites.stack(oom.stack).cloned();
        known.stack = known.stack.take().or_else(stack);
        known.given_up = Some(*oom);
        known.settle(IncidentOutcome::Failed, oom.time_ns);
        let row = known.row();
        self.changed.push(row);
    }

    /// Whether any process has an incident with an outcome that may change.
    pub(super) fn any_is_open(&self) -> bool {
        self.open > 0
    }

    /// Whether `pid` has an incident with an outcome that may change.
    pub(super) fn is_open(&self, pid: u32) -> bool {
        self.open_in(pid).next().is_some()
    }

    /// Records a successful allocation of a thread: by this call, or else by a framework's allocator.
    pub(super) fn given(&mut self, (pid, tid): (u32, u32), given: Option<&Call>, time_ns: u64) {
        let mut settled = Vec::new();
        for incident in self.open_in(pid) {
            let since_ns = time_ns.saturating_sub(incident.last_ns);
            if incident.tid != tid && since_ns <= ENDS_WITHIN_NS {
                continue;
            }
            let asked = &incident.asked;
            let is_enough = given.is_some_and(|given| {
                is_of_host(given) == asked.at_host && asked_bytes(given) >= asked.bytes
            });
            let is_pending =
                incident.outcome == IncidentOutcome::Pending && since_ns <= RETRY_WITHIN_NS;
            let outcome = match incident.tid == tid && is_pending && is_enough {
                true => IncidentOutcome::Retried,
                false => IncidentOutcome::Continued,
            };
            settled.push((incident.id, outcome));
        }
        for (id, outcome) in settled {
            self.settle(id, outcome, time_ns);
        }
    }

    /// Settles the incidents of a process that has ended.
    pub(super) fn end(&mut self, pid: u32, time_ns: Option<u64>) {
        let open: Vec<_> = self.open_in(pid).map(|one| (one.id, one.last_ns)).collect();
        for (id, last_ns) in open {
            self.settle(id, IncidentOutcome::Ended, time_ns.unwrap_or(last_ns));
        }
    }

    /// Takes the rows of incidents changed since the last call, for a recording.
    pub(super) fn take_changed(&mut self) -> Vec<IncidentRow> {
        std::mem::take(&mut self.changed)
    }

    /// Sets the final outcome of an incident.
    fn settle(&mut self, id: u64, outcome: IncidentOutcome, time_ns: u64) {
        if let Some(incident) = self.get_mut(id) {
            incident.settle(outcome, time_ns);
            let row = incident.row();
            self.changed.push(row);
            self.open -= 1;
        }
    }
}
