//! GPU activity (kernels, copies, API calls) as CUPTI reports it to a collector inside the traced
//! process.

mod clock;
mod decoder;
mod names;

use std::sync::Arc;

pub use decoder::{BatchDecoder, Losses};
pub use gpuprobe_wire::WireRecord as ActivityRecord;

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
        map_times(&mut record, |ns| *start.get_or_insert(ns));
        start.filter(|&ns| ns != 0)
    }
}

/// Maps every timestamp, the start first; an end never precedes its start.
fn map_times(record: &mut ActivityRecord, mut map: impl FnMut(u64) -> u64) {
    use ActivityRecord as One;
    let mut each = |times: &mut [&mut u64]| times.iter_mut().for_each(|time| **time = map(**time));
    match record {
        One::Api(r) => each(&mut [&mut r.start_ns, &mut r.end_ns]),
        One::Kernel(r) => each(&mut [
            &mut r.start_ns,
            &mut r.end_ns,
            &mut r.queued_ns,
            &mut r.submitted_ns,
            &mut r.completed_ns,
        ]),
        One::Memcpy(r) => each(&mut [&mut r.start_ns, &mut r.end_ns]),
        One::Memset(r) => each(&mut [&mut r.start_ns, &mut r.end_ns]),
        One::Memory(r) => each(&mut [&mut r.time_ns]),
        One::MemoryPool(r) => each(&mut [&mut r.time_ns]),
        One::Sync(r) => each(&mut [&mut r.start_ns, &mut r.end_ns]),
        One::GraphTrace(r) => each(&mut [&mut r.start_ns, &mut r.end_ns]),
        One::Overhead(r) => each(&mut [&mut r.start_ns, &mut r.end_ns]),
        One::Marker(r) => each(&mut [&mut r.time_ns]),
        _ => {}
    }
}
