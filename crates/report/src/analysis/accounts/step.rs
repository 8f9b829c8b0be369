//! Steps from one state of a file's memory to the next.

use gpuprobe_cuda::Belongs;
use gpuprobe_engine::{Allocation, Process};

/// The number of no caller.
pub(super) const NOBODY: u32 = u32::MAX;

/// One allocation, with who made it.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The allocation.
    pub allocation: Allocation,
    /// The number of its caller.
    pub caller: u32,
}

impl Part {
    /// An allocation of `process`.
    pub fn of(process: &Process, allocation: &Allocation) -> Self {
        Self {
            allocation: *allocation,
            caller: caller_of(process, allocation),
        }
    }

    /// Whether it is memory of the host.
    pub fn is_host(&self) -> bool {
        self.allocation.belongs() == Belongs::Host
    }
}

/// The changes that an event, or the end of a process, made.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// When, nanoseconds from the first event. Never goes back.
    pub time_ns: i64,
    /// Global id of the process.
    pub process: i64,
    /// The allocation that became live.
    pub allocated: Option<Part>,
    /// The allocations that are no longer live.
    pub freed: &'a [Part],
}

impl Step<'_> {
    /// All that it is about.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.freed.iter().chain(&self.allocated)
    }
}

/// The number of whoever made `allocation`.
pub(in crate::analysis) fn caller_of(process: &Process, allocation: &Allocation) -> u32 {
    let site = process.sites.of(allocation);
    site.and_then(|site| site.caller).unwrap_or(NOBODY)
}
