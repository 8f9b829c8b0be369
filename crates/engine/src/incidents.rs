//! Out of memory: requests that were refused, and what became of them.
//!
//! The first refusal on a thread opens an incident. While nothing else happens there, further refusals of
//! the same request are attempts of it: PyTorch frees what it has cached and tries again. It is settled
//! when the thread is given as much, or something else, when an allocator gives up, or when the process
//! ends. A program may be refused a million times a second: what is beyond an allowance opens no incident,
//! but is counted at the last one of its process.

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

use held::Given;
pub use held::{Held, HeldByPytorch, HeldSite, Other};

/// Incidents that are kept; the oldest give way.
const MAX_KEPT: usize = 256;
/// Incidents of one process at once, and in a second; and of all.
const AT_ONCE: u64 = 8;
const PER_SECOND: u64 = 1;
const ALL_AT_ONCE: u64 = 64;
const ALL_PER_SECOND: u64 = 8;
/// Processes whose allowances are remembered.
const MAX_PROCESSES: usize = 4096;
/// What is asked for later than this is no retry. PyTorch gives its cache back before it tries again,
/// which takes up to a second for a GPU full of small segments.
const RETRY_WITHIN_NS: u64 = 10_000_000_000;
/// While a thread that was refused makes its process end, others may go on for so long.
const ENDS_WITHIN_NS: u64 = 1_000_000_000;

/// What became of a request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet.
    Pending,
    /// The thread asked again and was given as much.
    Retried,
    /// The allocator of a framework gave up, after its retries.
    Failed,
    /// The program went on without it.
    Continued,
    /// The process ended, and had not gone on.
    Ended,
}

impl Outcome {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Retried => "retried",
            Self::Failed => "failed",
            Self::Continued => "continued",
            Self::Ended => "ended",
        }
    }

    /// Whether nothing more can come of it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Retried | Self::Continued | Self::Ended)
    }
}

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Row of the function that was called; of an allocator's request of which no call was seen, that by
    /// which it told.
    pub row: u16,
    /// CUDA's error; none if no call was seen.
    pub result: Option<i32>,
    /// Kind of memory.
    pub kind: MemoryKind,
    /// Bytes, if the call says how many.
    pub bytes: Option<u64>,
    /// Device index as CUDA numbers it in the process, if known; none for memory of the host.
    pub device: Option<u16>,
    /// Memory of the host.
    pub at_host: bool,
    /// From where.
    pub stack: Option<Rc<CallStack>>,
    /// The number of the stack in records.
    pub stack_number: u64,
}

/// What the allocator of a framework said when it gave up.
#[derive(Clone, Debug)]
pub struct GivenUp {
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Bytes that were asked of it.
    pub bytes: u64,
    /// Bytes that it has handed out on the device, as it says.
    pub allocated_bytes: u64,
    /// Bytes that it has from CUDA for that, as it says.
    pub reserved_bytes: u64,
    /// Device index as CUDA numbers it in the process.
    pub device: u16,
    /// From where it was asked.
    pub stack: Option<Rc<CallStack>>,
}

/// A request that was refused.
#[derive(Clone, Debug)]
pub struct Incident {
    /// Its number in the run, from 1.
    pub id: u64,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name of the process, if known.
    pub comm: Option<String>,
    /// Who the process is.
    pub identity: Identity,
    /// When it was refused first, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// When it was refused last.
    pub last_ns: u64,
    /// What was asked for.
    pub asked: Asked,
    /// Calls of CUDA that failed.
    pub attempts: u64,
    /// Further calls that failed and opened no incident, for there were too many.
    pub repeats: u64,
    /// What the allocator of a framework said, if one gave up.
    pub given_up: Option<GivenUp>,
    /// What the process held.
    pub held: Held,
    /// The other traced processes that held something on the same GPU, most first.
    pub others: Vec<Other>,
    /// What the host said of the GPU, if it was asked.
    pub gpu: Option<Box<GpuUse>>,
    /// What became of it.
    pub outcome: Outcome,
    /// When that showed, `CLOCK_MONOTONIC` nanoseconds.
    pub outcome_ns: Option<u64>,
    /// A report has shown it as it is.
    is_reported: bool,
}

/// What a row of a recording has of an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncidentRow {
    /// Its number.
    pub id: u64,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// When it was refused first, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Row of the function table.
    pub row: u16,
    /// CUDA's error.
    pub result: Option<i32>,
    /// Kind of memory.
    pub kind: MemoryKind,
    /// Bytes asked for.
    pub bytes: Option<u64>,
    /// Device index of the process.
    pub device: Option<u16>,
    /// Number of the call stack.
    pub stack: u64,
    /// Calls that failed, and those that opened no incident of their own.
    pub calls: [u64; 2],
    /// Bytes of GPU memory that the process held.
    pub live_bytes: u64,
    /// What was asked of the framework's allocator, what it had handed out, and had from CUDA.
    pub given_up: Option<[u64; 3]>,
    /// What became of it, and when.
    pub outcome: (Outcome, Option<u64>),
}

impl Incident {
    /// Device index as CUDA numbers it in the process, if known.
    pub fn device(&self) -> Option<u16> {
        let told = self.given_up.as_ref().map(|given_up| given_up.device);
        let single = self.identity.single_gpu.then_some(0);
        match self.asked.at_host {
            true => None,
            false => told.or(self.asked.device).or(single),
        }
    }

    /// What a recording has of it.
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
            given_up: self
                .given_up
                .as_ref()
                .map(|told| [told.bytes, told.allocated_bytes, told.reserved_bytes]),
            outcome: (self.outcome, self.outcome_ns),
        }
    }

    fn settle(&mut self, outcome: Outcome, time_ns: u64) {
        (self.outcome, self.outcome_ns) = (outcome, Some(time_ns));
        self.is_reported = false;
    }

    /// Whether `asked` is this request once more.
    fn is_same(&self, asked: &Asked, time_ns: u64) -> bool {
        let same = (self.asked.row, self.asked.bytes) == (asked.row, asked.bytes);
        let is_soon = time_ns <= self.last_ns.saturating_add(RETRY_WITHIN_NS);
        self.outcome == Outcome::Pending && same && is_soon
    }
}

/// Whether `call` was refused for want of memory.
pub(super) fn is_refused(call: &Call) -> bool {
    call.result == OUT_OF_MEMORY && call.function.op.allocates()
}

/// All incidents of a run.
#[derive(Debug, Default)]
pub struct Incidents {
    kept: VecDeque<Incident>,
    /// Incidents so far.
    count: u64,
    /// Calls that were refused so far.
    pub refused_calls: u64,
    /// Those that are not settled for good, by process: thread and number.
    open: HashMap<u32, Vec<(u32, u64)>>,
    /// The last one of a process, and its allowance.
    processes: HashMap<u32, (u64, Allowance)>,
    all: Allowance,
    /// What has changed.
    changed: Vec<IncidentRow>,
}

impl Incidents {
    /// Those that are kept, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Incident> {
        self.kept.iter()
    }

    /// Those that no report has shown as they are now, or all.
    pub fn listed(&self, all: bool) -> impl Iterator<Item = &Incident> {
        self.iter().filter(move |one| all || !one.is_reported)
    }

    /// The one of this number, if it is kept.
    pub fn get(&self, id: u64) -> Option<&Incident> {
        let first = self.kept.front()?.id;
        self.kept.get(usize::try_from(id.checked_sub(first)?).ok()?)
    }

    /// Incidents so far, kept or not.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What the host says of the GPU whose memory was refused.
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

    /// The incident of this thread that is not settled for good.
    fn open_of(&self, pid: u32, tid: u32) -> Option<u64> {
        let open = self.open.get(&pid)?;
        let found = open.iter().find(|(thread, _)| *thread == tid);
        found.map(|(_, id)| *id)
    }

    /// A call was refused. `incident` is asked for what there is to say of that, if it is to be an incident
    /// of its own.
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

    /// Opens an incident, if there may be another one.
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
        // It asks for something else.
        if let Some(before) = self.open_of(pid, tid) {
            self.settle(pid, before, Outcome::Continued, time_ns);
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

    /// An allocator of a framework gave up. `incident` is asked for what there is to say if no call of CUDA
    /// was refused before, else `held` for what the process holds by now.
    pub(super) fn gave_up(
        &mut self,
        told: &OutOfMemory,
        given_up: GivenUp,
        held: impl FnOnce() -> Held,
        incident: impl FnOnce(u64) -> Incident,
    ) {
        let open = self.open_of(told.pid, told.tid);
        let pending = open
            .and_then(|id| self.get_mut(id))
            .filter(|known| known.outcome == Outcome::Pending);
        let known = match pending {
            Some(known) => {
                known.held = held();
                known
            }
            None => match self.begin(told.pid, (told.tid, told.time_ns), incident) {
                Some(begun) => begun,
                None => return,
            },
        };
        known.given_up = Some(given_up);
        known.settle(Outcome::Failed, told.time_ns);
        let row = known.row();
        self.changed.push(row);
    }

    /// Whether anything is open of `pid`: what it is given matters then.
    pub(super) fn is_open(&self, pid: u32) -> bool {
        !self.open.is_empty() && self.open.contains_key(&pid)
    }

    /// A thread was given memory: by CUDA, or else by a framework's allocator.
    pub(super) fn given(&mut self, (pid, tid): (u32, u32), given: Option<Given>, time_ns: u64) {
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
            let is_pending = incident.outcome == Outcome::Pending && since_ns <= RETRY_WITHIN_NS;
            let outcome = match thread == tid && is_pending && is_enough {
                true => Outcome::Retried,
                false => Outcome::Continued,
            };
            self.settle(pid, id, outcome, time_ns);
        }
    }

    /// A process has ended.
    pub(super) fn end(&mut self, pid: u32, time_ns: Option<u64>) {
        self.processes.remove(&pid);
        for (_, id) in self.open.get(&pid).cloned().unwrap_or_default() {
            let last_ns = self.get(id).map_or(0, |incident| incident.last_ns);
            self.settle(pid, id, Outcome::Ended, time_ns.unwrap_or(last_ns));
        }
    }

    /// What has changed since this was last asked, for the rows of a recording.
    pub(super) fn take_changed(&mut self) -> Vec<IncidentRow> {
        std::mem::take(&mut self.changed)
    }

    /// Nothing more can come of an incident.
    fn settle(&mut self, pid: u32, id: u64, outcome: Outcome, time_ns: u64) {
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
