//! Amounts of live memory in a file.

use serde::Serialize;

use gpuprobe_model::Total;
use gpuprobe_recording::Trace;

/// Amounts by how much is known of the allocating calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnalysisTotals {
    /// Sum of the three amounts below.
    pub total: Total,
    /// Allocated by calls with a call stack.
    pub valid: Total,
    /// Allocated by calls without a call stack.
    pub invalid: Total,
    /// Allocated by the driver itself.
    pub driver: Total,
}

impl AnalysisTotals {
    fn of(&mut self, trace: Trace) -> &mut Total {
        match trace {
            Trace::Valid => &mut self.valid,
            Trace::Invalid => &mut self.invalid,
            Trace::Driver => &mut self.driver,
        }
    }

    pub(super) fn add(&mut self, trace: Trace, bytes: u64) {
        self.total.add(bytes);
        self.of(trace).add(bytes);
    }

    pub(super) fn subtract(&mut self, trace: Trace, bytes: u64) {
        self.total.subtract(bytes);
        self.of(trace).subtract(bytes);
    }
}

/// Number of inconsistencies in the memory events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Anomalies {
    /// Number of memory events read.
    pub events: u64,
    /// Number of these that are about host memory.
    pub host_events: u64,
    /// Allocations at an address with a live allocation; the free of the older one is not in the
    /// file.
    pub double_allocations: u64,
    /// Frees of memory with no known allocation.
    pub unmatched_frees: u64,
    /// Frees with another size than was allocated.
    pub size_mismatches: u64,
    /// Malformed rows, which were skipped.
    pub malformed: u64,
}
