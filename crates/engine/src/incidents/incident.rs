//! A failed allocation.

use super::super::Identity;
use super::RETRY_WITHIN_NS;
use super::held::{HeldByProcess, Other};
use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::GpuUse;
use gpuprobe_model::event::OutOfMemory;
use gpuprobe_model::stack::CallStack;
use std::rc::Rc;

gpuprobe_cuda::named! {
    /// Outcome of a failed request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum IncidentOutcome {
        /// Later events decide.
        Pending = "pending",
        /// A later request of the thread for as much memory succeeded.
        Retried = "retried",
        /// The allocator of a framework gave up, after its retries.
        Failed = "failed",
        /// The program went on without the memory.
        Continued = "continued",
        /// The process ended without going on.
        Ended = "ended",
    }
}

impl IncidentOutcome {
    /// Whether the outcome cannot change any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Retried | Self::Continued | Self::Ended)
    }
}

/// A failed request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRequest {
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
    /// Number of its call stack in event records.
    pub stack: u64,
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
    pub asked: MemoryRequest,
    /// Call stack of the request.
    pub stack: Option<Rc<CallStack>>,
    /// Number of failed CUDA calls.
    pub attempts: u64,
    /// Number of further failed calls, which opened no incident because of the rate limit.
    pub repeats: u64,
    /// What the framework's allocator reported, if one gave up.
    pub given_up: Option<OutOfMemory>,
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
    pub(super) is_reported: bool,
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
    /// The request, on its device, if that is known.
    pub asked: MemoryRequest,
    /// Failed calls, and failed calls that opened no incident of their own.
    pub calls: [u64; 2],
    /// Bytes of GPU memory that the process held.
    pub live_bytes: u64,
    /// What the framework's allocator reported, if one gave up.
    pub given_up: Option<OutOfMemory>,
    /// Outcome, and when it was observed.
    pub outcome: (IncidentOutcome, Option<u64>),
}

impl Incident {
    /// Device index as CUDA numbers it in the process, if known.
    pub fn device(&self) -> Option<u16> {
        let reported = self.given_up.as_ref().and_then(|given_up| given_up.device);
        let single = self.identity.single_gpu.then_some(0);
        match self.asked.at_host {
            true => None,
            false => reported.or(self.asked.device).or(single),
        }
    }

    /// The row of the incident in a recording.
    pub(crate) fn row(&self) -> IncidentRow {
        IncidentRow {
            id: self.id,
            pid: self.pid,
            tid: self.tid,
            time_ns: self.time_ns,
            asked: MemoryRequest {
                device: self.device(),
                ..self.asked
            },
            calls: [self.attempts, self.repeats],
            live_bytes: self.held.sums.gpu.bytes,
            given_up: self.given_up,
            outcome: (self.outcome, self.outcome_ns),
        }
    }

    pub(super) fn settle(&mut self, outcome: IncidentOutcome, time_ns: u64) {
        (self.outcome, self.outcome_ns) = (outcome, Some(time_ns));
        self.is_reported = false;
    }

    /// Whether `asked` is another attempt of this request.
    pub(super) fn is_same(&self, asked: &MemoryRequest, time_ns: u64) -> bool {
        let same = (self.asked.row, self.asked.bytes) == (asked.row, asked.bytes);
        let is_soon = time_ns <= self.last_ns.saturating_add(RETRY_WITHIN_NS);
        self.outcome == IncidentOutcome::Pending && same && is_soon
    }
}
