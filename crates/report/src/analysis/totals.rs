//! Amounts of live memory in a file.

use serde::Serialize;

use gpuprobe_recording::Trace;

/// Bytes and number of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AllocationSum {
    /// Sum of the sizes, bytes.
    pub bytes: u64,
    /// Number of live allocations.
    pub allocations: u64,
}

impl AllocationSum {
    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.allocations += 1;
    }

    pub(super) fn subtract(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.allocations = self.allocations.saturating_sub(1);
    }
}

/// Amounts by how much is known of the allocating calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnalysisTotals {
    /// Sum of the three amounts below.
    pub total: AllocationSum,
    /// Allocated by calls with a call stack.
    pub valid: AllocationSum,
    /// Allocated by calls without a call stack.
    pub invalid: AllocationSum,
    /// Allocated by the driver itself.
    pub driver: AllocationSum,
}

impl AnalysisTotals {
    fn of(&mut self, trace: Trace) -> &mut AllocationSum {
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
