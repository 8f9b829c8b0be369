//! GPU activity (kernels, copies, API calls) as CUPTI reports it to a collector inside the traced
//! process.

mod clock;
mod decoder;
mod names;

use std::sync::Arc;

use gpuprobe_wire as wire;

pub use decoder::{BatchDecoder, Losses};

/// A decoded batch of one process. Its activities are in the order of the batch, which is not
/// sorted by time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityBatch {
    /// Process id in gpuprobe's PID namespace.
    pub pid: u32,
    /// Distinguishes processes that reuse a process id, see [`crate::event::Task::process`].
    pub process: u32,
    /// Result of `cuptiGetVersion` in the process; 0 if unknown.
    pub cupti_version: u32,
    /// The collector has shut down cleanly: this is the last batch of the process.
    pub is_last: bool,
    /// Decoded records of the batch.
    pub activities: Vec<Activity>,
}

/// An activity record with its names resolved and its times in `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Process id in gpuprobe's PID namespace; process ids within `record` are in the process's
    /// own.
    pub pid: u32,
    /// The record; its text ids are resolved already and no longer valid.
    pub record: ActivityRecord,
    /// Name of the kernel (mangled), function, device, variable or marker.
    pub name: Option<Arc<str>>,
    /// Domain of a marker, or library that made an allocation.
    pub qualifier: Option<Arc<str>>,
}

impl Activity {
    /// Start time in nanoseconds; `None` for records without a time.
    pub fn start_ns(&self) -> Option<u64> {
        let (mut record, mut start) = (self.record, None);
        record.map_times(|ns| *start.get_or_insert(ns));
        start.filter(|&ns| ns != 0)
    }
}

/// An activity record, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is documented where it is laid out")]
pub enum ActivityRecord {
    Device(wire::Device),
    Context(wire::Context),
    Stream(wire::Stream),
    Api(wire::Api),
    Kernel(wire::Kernel),
    Memcpy(wire::Memcpy),
    Memset(wire::Memset),
    Memory(wire::Memory),
    MemoryPool(wire::MemoryPool),
    Sync(wire::Sync),
    GraphTrace(wire::GraphTrace),
    Overhead(wire::Overhead),
    Name(wire::Name),
    Marker(wire::Marker),
    ExternalCorrelation(wire::ExternalCorrelation),
}
