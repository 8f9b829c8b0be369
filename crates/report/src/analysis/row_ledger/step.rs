//! Steps from one state of a file's memory to the next.

use gpuprobe_cuda::Belongs;
use gpuprobe_engine::{Allocation, Process};

/// Number that stands for an unknown caller.
pub(super) const UNKNOWN_CALLER: u32 = u32::MAX;

/// An allocation with its caller.
#[derive(Clone, Copy, Debug)]
pub struct AllocationWithCaller {
    /// The allocation as the engine keeps it.
    pub allocation: Allocation,
    /// Number of its caller in the callers of the file.
    pub caller: u32,
}

impl AllocationWithCaller {
    /// The allocation with its caller in `process`.
    pub fn of(process: &Process, allocation: &Allocation) -> Self {
        Self {
            allocation: *allocation,
            caller: caller_of(process, allocation),
        }
    }

    /// Whether it is host memory.
    pub fn is_host(&self) -> bool {
        self.allocation.belongs() == Belongs::Host
    }
}

/// Changes caused by an event, or by the end of a process.
#[derive(Clone, Copy, Debug)]
pub struct LedgerChange<'a> {
    /// Time of the change, nanoseconds from the first event. Never decreases.
    pub time_ns: i64,
    /// Time of the event itself, which calls of other threads may have overtaken.
    pub event_ns: i64,
    /// Global id of the process.
    pub process: i64,
    /// The allocation that became live.
    pub allocated: Option<AllocationWithCaller>,
    /// Whether they are no longer live because their process has ended.
    pub is_end: bool,
    /// The allocations that are no longer live.
    pub freed: &'a [AllocationWithCaller],
}

impl LedgerChange<'_> {
    /// The allocation that became live, and those that are no longer live.
    pub fn parts(&self) -> impl Iterator<Item = &AllocationWithCaller> {
        self.freed.iter().chain(&self.allocated)
    }
}

/// Number of the caller that made `allocation`.
pub(in crate::analysis) fn caller_of(process: &Process, allocation: &Allocation) -> u32 {
    let site = process.sites.of(allocation);
    site.and_then(|site| site.caller).unwrap_or(UNKNOWN_CALLER)
}
