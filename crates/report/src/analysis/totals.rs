//! Amounts.

use serde::Serialize;

use gpuprobe_recording::Trace;

/// Bytes and number of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// Bytes.
    pub bytes: u64,
    /// Allocations.
    pub allocations: u64,
}

impl Amount {
    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.allocations += 1;
    }

    pub(super) fn subtract(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.allocations = self.allocations.saturating_sub(1);
    }
}

/// Amounts by what is known of their calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// All of it.
    pub total: Amount,
    /// With a call stack.
    pub valid: Amount,
    /// Without.
    pub invalid: Amount,
    /// By the driver, directly.
    pub driver: Amount,
}

impl Totals {
    fn of(&mut self, trace: Trace) -> &mut Amount {
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

/// What was odd about the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Memory events that were looked at.
    pub events: u64,
    /// Of these, of host memory.
    pub host_events: u64,
    /// Allocations at an address that was allocated already; the older one was freed unseen.
    pub double_allocations: u64,
    /// Frees of memory that was not seen to be allocated.
    pub unmatched_frees: u64,
    /// Frees of another size than was allocated.
    pub size_mismatches: u64,
    /// Rows that make no sense.
    pub malformed: u64,
}
