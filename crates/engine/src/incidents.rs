//! Out-of-memory incidents: failed requests for memory, and their outcomes.
//!
//! The first failed request on a thread opens an incident. Further failures of the same request on
//! that thread are attempts of the same incident: PyTorch frees its cache and tries again. The
//! incident is settled when the thread is given as much memory, makes another request, when an
//! allocator gives up, or when the process ends. A program may fail a million requests a second:
//! beyond a rate limit they open no incident, and are counted in the last one of the process.

mod held;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::VecDeque;
use std::rc::Rc;

use hashbrown::HashMap;

use super::Identity;
use super::allowance::Allowance;
use gpuprobe_cuda::{MemoryKind, OUT_OF_MEMORY};
use gpuprobe_model::GpuUse;
use gpuprobe_model::event::{Call, OutOfMemory};
use gpuprobe_model::stack::CallStack;

use held::ThreadGrants;
pub use held::{HeldByProcess, HeldByPytorch, HeldSite, Other};

/// Incidents kept before the oldest are dropped.
const MAX_KEPT: usize = 256;
/// Incidents opened at once, and per second: of one process, and of all.
const AT_ONCE: u64 = 8;
const PER_SECOND: u64 = 1;
const ALL_AT_ONCE: u64 = 64;
const ALL_PER_SECOND: u64 = 8;
/// Processes with a rate limit of their own.
const MAX_PROCESSES: usize = 4096;
/// A later request is not a retry. PyTorch empties its cache before it retries, which takes up to a
/// second for a GPU full of small segments.
const RETRY_WITHIN_NS: u64 = 10_000_000_000;
/// Other threads may go on for this long after a failed request that ends the process.
const ENDS_WITHIN_NS: u64 = 1_000_000_000;

/// Outcome of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncidentOutcome {
    /// Later events decide.
    Pending,
    /// A later request of the thread for as much memory succeeded.
    Retried,
    /// The allocator of a framework gave up, after its retries.
    Failed,
    /// The program went on without the memory.
    Continued,
    /// The process ended without going on.
    Ended,
}

impl IncidentOutcome {
    /// Name of the outcome in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Retried => "retried",
            Self::Failed => "failed",
            Self::Continued => "continued",
            Self::Ended => "ended",
        }
    }

    /// Whether the outcome cannot change any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Retried | Self::Continued | Self::Ended)
    }
}

/// A failed request for memory.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Index into the function table of the failed function; if no failed call was seen, of the
    /// allocator's function that reported the failure.
    pub row: u16,
    /// Error code of CUDA; `None` if no failed call was seen.
    pub result: Option<i32>,
    /// Kind of memory that was requested.
    pub kind: MemoryKind,
    /// Bytes requested, if the call has a size.
    pub bytes: Option<u64>,
    /// Device index as CUDA numbers it in the process, if known; `None` for host memory.
    pub device: Option<u16>,
    /// Whether host memory was requested.
    pub at_host: bool,
    /// Call stack of the request.
    pub stack: Option<Rc<CallStack>>,
    /// Number of the call stack in event records.
    pub stack_number: u64,
}

/// State of a framework's allocator when it gave up.
#[derive(Clone, Debug)]
pub struct GivenUp {
    /// When it gave up, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Bytes requested from the allocator.
    pub bytes: u64,
    /// Bytes allocated on the device, as the allocator reports.
    pub allocated_bytes: u64,
    /// Bytes reserved from CUDA, as the allocator reports.
    pub reserved_bytes: u64,
    /// Device index as CUDA numbers it in the process.
    pub device: u16,
    /// Call stack of the request.
    pub stack: Option<Rc<CallStack>>,
}

/// An out-of-memory incident: a failed request with its context and outcome.
#[derive(Clone, Debug)]
pub struct Incident {
    /// Number of the incident in the run, from 1.
    pub id: u64,
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// Thread id of the failed request.
    pub tid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name (comm) of the process, if known.
    pub comm: Option<String>,
    /// Identity of the process: its command line, container and GPUs.
    pub identity: Identity,
    /// When the first attempt failed, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// When the last attempt failed, `CLOCK_MONOTONIC` nanoseconds.
    pub last_ns: u64,
    /// The request that failed.
    pub asked: Asked,
    /// Number of failed CUDA calls.
    pub attempts: u64,
    /// Number of further failed calls, which opened no incident because of the rate limit.
    pub repeats: u64,
    /// State of the framework's allocator, if one gave up.
    pub given_up: Option<GivenUp>,
    /// Memory that the process held.
    pub held: HeldByProcess,
    /// The other traced processes with memory on the same GPU, largest first.
    pub others: Vec<Other>,
    /// Memory use of the GPU from NVML, if it was queried.
    pub gpu: Option<Box<GpuUse>>,
    /// Outcome of the request.
    pub outcome: IncidentOutcome,
    /// When the outcome was observed, `CLOCK_MONOTONIC` nanoseconds.
    pub outcome_ns: Option<u64>,
    /// Whether a report has shown the incident in its current state.
    is_reported: bool,
}

/// The row of an incident in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncidentRow {
    /// Number of the incident in the run, from 1.
    pub id: u64,
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// Thread id of the failed request.
    pub tid: u32,
    /// When the first attempt failed, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Index into the function table.
    pub row: u16,
    /// Error code of CUDA, if known.
    pub result: Option<i32>,
    /// Kind of memory that was requested.
    pub kind: MemoryKind,
    /// Bytes requested, if known.
    pub bytes: Option<u64>,
    /// Device index as CUDA numbers it in the process, if known.
    pub device: Option<u16>,
    /// Number of the call stack.
    pub stack: u64,
    /// Failed calls, and failed calls that opened no incident of their own.
    pub calls: [u64; 2],
    /// Bytes of GPU memory that the process held.
    pub live_bytes: u64,
    /// Bytes requested from the framework's allocator, allocated by it, and reserved from CUDA.
    pub given_up: Option<[u64; 3]>,
    /// Outcome, and when it was observed.
    pub outcome: (IncidentOutcome, Option<u64>),
}

impl Incident {
    /// Device index as CUDA numbers it in the process, if known.
    pub fn device(&self) -> Option<u16> {
        let reported = self.given_up.as_ref().map(|given_up| given_up.device);
        let single = self.identity.single_gpu.then_some(0);
        match self.asked.at_host {
            true => None,
            false => reported.or(self.asked.device).or(single),
        }
    }

    /// The row of the incident in a recording.
    pub(super) fn row(&self) -> IncidentRow {
        IncidentRow {
            id: self.id,
            pid: self.pid,
            tid: self.tid,
            time_ns: self.time_ns,
            row: self.asked.row,
            result: self.asked.result,
            kind: self.asked.kind,
            bytes: self.asked.bytes,
            device: self.device(),
            stack: self.asked.stack_number,
            calls: [self.attempts, self.repeats],
            live_bytes: self.held.sums.gpu.bytes,
            given_up: self.given_up.as_ref().map(|gave_up| {
                [
                    gave_up.bytes,
                    gave_up.allocated_bytes,
                    gave_up.reserved_bytes,
                ]
            }),
            outcome: (self.outcome, self.outcome_ns),
        }
    }

    fn settle(&mut self, outcome: IncidentOutcome, time_ns: u64) {
        (self.outcome, self.outcome_ns) = (outcome, Some(time_ns));
        self.is_reported = false;
    }

    /// Whether `asked` is another attempt of this request.
    fn is_same(&self, asked: &Asked, time_ns: u64) -> bool {
        let same = (self.asked.row, self.asked.bytes) == (asked.row, asked.bytes);
        let is_soon = time_ns <= self.last_ns.saturating_add(RETRY_WITHIN_NS);
        self.outcome == IncidentOutcome::Pending && same && is_soon
    }
}

/// Whether `call` failed for lack of memory.
pub(super) fn is_refused(call: &Call) -> bool {
    call.result == OUT_OF_MEMORY && call.function.op.allocates()
}

/// All incidents of a run.
#[derive(Debug, Default)]
pub struct Incidents {
    kept: VecDeque<Incident>,
    /// Number of incidents so far.
    count: u64,
    /// Number of failed calls so far.
    pub refused_calls: u64,
    /// Incidents with an outcome that may change, by process: thread id and incident number.
    open: HashMap<u32, Vec<(u32, u64)>>,
    /// The last incident of each process, and its rate limit.
    processes: HashMap<u32, (u64, Allowance)>,
    all: Allowance,
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
        let first = self.kept.front()?.id;
        self.kept.get(usize::try_from(id.checked_sub(first)?).ok()?)
    }

    /// Number of incidents so far, kept or dropped.
    pub fn count(&self) -> u64 {
        self.count
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
        let first = self.kept.front()?.id;
        let place = usize::try_from(id.checked_sub(first)?).ok()?;
        self.kept.get_mut(place)
    }

    /// The incident of this thread with an outcome that may change.
    fn open_of(&self, pid: u32, tid: u32) -> Option<u64> {
        let open = self.open.get(&pid)?;
        let found = open.iter().find(|(thread, _)| *thread == tid);
        found.map(|(_, id)| *id)
    }

    /// Records a failed call. `incident` makes the incident, if the call opens one.
    pub(super) fn refused(
        &mut self,
        pid: u32,
        (tid, time_ns): (u32, u64),
        asked: Asked,
        incident: impl FnOnce(u64, Asked) -> Incident,
    ) {
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
        if let Some(begun) = self.begin(pid, (tid, time_ns), |id| incident(id, asked)) {
            let row = begun.row();
            self.changed.push(row);
            return;
        }
        let last = self.processes.get(&pid).map(|(last, _)| *last);
        if let Some(known) = last.and_then(|last| self.get_mut(last)) {
            known.repeats += 1;
            known.is_reported = false;
            let row = known.repeats.is_power_of_two().then(|| known.row());
            self.changed.extend(row);
        }
    }

    /// Opens an incident, if the rate limits allow it.
    fn begin(
        &mut self,
        pid: u32,
        (tid, time_ns): (u32, u64),
        incident: impl FnOnce(u64) -> Incident,
    ) -> Option<&mut Incident> {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid) {
            self.processes.clear();
        }
        let (last, allowance) = self.processes.entry(pid).or_default();
        let may = allowance.take(1, time_ns, AT_ONCE, PER_SECOND)
            && self.all.take(1, time_ns, ALL_AT_ONCE, ALL_PER_SECOND);
        if !may {
            return None;
        }
        self.count += 1;
        let id = self.count;
        *last = id;
        // The thread has made another request.
        if let Some(before) = self.open_of(pid, tid) {
            self.settle(pid, before, IncidentOutcome::Continued, time_ns);
        }
        if self.kept.len() >= MAX_KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.close(oldest.pid, oldest.id);
        }
        self.kept.push_back(incident(id));
        self.open.entry(pid).or_default().push((tid, id));
        self.kept.back_mut()
    }

    /// Records that the allocator of a framework gave up. `incident` makes the incident if no CUDA
    /// call failed before; otherwise `held` returns what the process holds now, for the pending
    /// incident.
    pub(super) fn gave_up(
        &mut self,
        oom: &OutOfMemory,
        given_up: GivenUp,
        held: impl FnOnce() -> HeldByProcess,
        incident: impl FnOnce(u64) -> Incident,
    ) {
        let open = self.open_of(oom.pid, oom.tid);
        let pending = open
            .and_then(|id| self.get_mut(id))
            .filter(|known| known.outcome == IncidentOutcome::Pending);
        let known = match pending {
            Some(known) => {
                known.held = held();
                known
            }
            None => match self.begin(oom.pid, (oom.tid, oom.time_ns), incident) {
                Some(begun) => begun,
                None => return,
            },
        };
        known.given_up = Some(given_up);
        known.settle(IncidentOutcome::Failed, oom.time_ns);
        let row = known.row();
        self.changed.push(row);
    }

    /// Whether `pid` has an incident with an outcome that may change.
    pub(super) fn is_open(&self, pid: u32) -> bool {
        !self.open.is_empty() && self.open.contains_key(&pid)
    }

    /// Records a successful allocation of a thread: `given` if by CUDA, `None` if by a framework's
    /// allocator.
    pub(super) fn given(
        &mut self,
        (pid, tid): (u32, u32),
        given: Option<ThreadGrants>,
        time_ns: u64,
    ) {
        for (thread, id) in self.open.get(&pid).cloned().unwrap_or_default() {
            let Some(incident) = self.get_mut(id) else {
                continue;
            };
            let since_ns = time_ns.saturating_sub(incident.last_ns);
            if thread != tid && since_ns <= ENDS_WITHIN_NS {
                continue;
            }
            let is_enough = given.is_some_and(|given| {
                let same_side = given.at_host == incident.asked.at_host;
                same_side && given.bytes >= incident.asked.bytes
            });
            let is_pending =
                incident.outcome == IncidentOutcome::Pending && since_ns <= RETRY_WITHIN_NS;
            let outcome = match thread == tid && is_pending && is_enough {
                true => IncidentOutcome::Retried,
                false => IncidentOutcome::Continued,
            };
            self.settle(pid, id, outcome, time_ns);
        }
    }

    /// Settles the incidents of a process that has ended.
    pub(super) fn end(&mut self, pid: u32, time_ns: Option<u64>) {
        self.processes.remove(&pid);
        for (_, id) in self.open.get(&pid).cloned().unwrap_or_default() {
            let last_ns = self.get(id).map_or(0, |incident| incident.last_ns);
            self.settle(pid, id, IncidentOutcome::Ended, time_ns.unwrap_or(last_ns));
        }
    }

    /// Takes the rows of incidents changed since the last call, for a recording.
    pub(super) fn take_changed(&mut self) -> Vec<IncidentRow> {
        std::mem::take(&mut self.changed)
    }

    /// Sets the outcome of an incident.
    fn settle(&mut self, pid: u32, id: u64, outcome: IncidentOutcome, time_ns: u64) {
        if let Some(incident) = self.get_mut(id) {
            incident.settle(outcome, time_ns);
            let row = incident.row();
            self.changed.push(row);
        }
        self.close(pid, id);
    }

    fn close(&mut self, pid: u32, id: u64) {
        if let Some(open) = self.open.get_mut(&pid) {
            open.retain(|(_, known)| *known != id);
            if open.is_empty() {
                self.open.remove(&pid);
            }
        }
    }
}
