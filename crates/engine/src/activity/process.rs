//! GPU activity of one process.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use super::by_work::{ByWork, Spent, WorkKind};
use super::kernels::KernelsOfProcess;
use super::ranges::NvtxRanges;
use super::tally::{Moved, Tally};
use crate::totals::Total;
use crate::transfers::{Mode, mode_of};
use gpuprobe_cuda::{Direction, nsys};
use gpuprobe_model::activity::{Activity, ActivityBatch, ActivityRecord};
use gpuprobe_model::event::MAX_DEVICES;
use gpuprobe_wire as wire;

/// A bit in the flags of a copy, of which CUPTI uses the lowest: it is unknown if the call was
/// synchronous, as in the rows of an Nsight Systems export.
pub const MODE_NOT_TOLD: u8 = 1 << 7;
/// Contexts and streams listed per process.
const MAX_LISTED: usize = 4096;
/// Functions, and kinds of overhead, counted separately per process.
const MAX_CALLS: usize = 8192;
const MAX_OVERHEADS: usize = 64;

/// Activity of one GPU within a process.
#[derive(Clone, Debug, Default)]
pub struct DeviceActivity {
    /// CUPTI's description of the device, if it was requested.
    pub described: Option<(Arc<str>, wire::Device)>,
    /// Busy time by kind of work.
    pub busy: ByWork,
    /// Busy time at the last report.
    pub reported: Spent,
    /// Kernel runs, concurrent or not.
    pub kernels: Tally,
    /// Number and durations of copies.
    pub copies: Tally,
    /// Number and durations of memory sets.
    pub sets: Tally,
}

/// Key by which copies are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CopyClass {
    /// Kinds of memory that the copy goes between.
    pub direction: Direction,
    /// Meaning of the duration of the call; `None` if it is unknown.
    pub mode: Option<Mode>,
    /// `CUpti_ActivityMemoryKind` of the source; 0 if unknown.
    pub source: u8,
    /// `CUpti_ActivityMemoryKind` of the destination; 0 if unknown.
    pub destination: u8,
}

/// Calls of a driver or runtime function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionCalls {
    /// Name of the function, if the collector has sent it.
    pub name: Option<Arc<str>>,
    /// Number and durations of its calls.
    pub calls: Tally,
    /// Number of calls that returned an error.
    pub failed: u64,
}

/// GPU activity of one process.
#[derive(Clone, Debug, Default)]
pub struct ProcessActivity {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name (comm) of the process, if known.
    pub comm: Option<String>,
    /// When the process ended or called `exec`, `CLOCK_MONOTONIC` nanoseconds.
    pub ended_ns: Option<u64>,
    /// Whether a report has shown the end of the process.
    pub end_reported: bool,
    /// Whether the collector has handed over everything and ended.
    pub is_complete: bool,
    /// Version that `cuptiGetVersion` returns in the process.
    pub cupti_version: u32,
    /// Number of activity records received.
    pub records: u64,
    /// The earliest time in any record, nanoseconds; `u64::MAX` if there is none.
    pub first_ns: u64,
    /// The latest time in any record, nanoseconds.
    pub last_ns: u64,
    /// GPUs by device index, as CUDA numbers them in the process.
    pub devices: BTreeMap<u32, DeviceActivity>,
    /// Contexts by CUPTI's context id.
    pub contexts: BTreeMap<u32, wire::Context>,
    /// Work run on each stream, by CUPTI's context and stream ids.
    pub streams: BTreeMap<(u32, u32), Tally>,
    /// Kernel runs, by kernel name.
    pub kernels: KernelsOfProcess,
    /// Totals of copies, by direction, mode and memory kinds.
    pub copies: BTreeMap<CopyClass, Moved>,
    /// Totals of memory sets.
    pub sets: Moved,
    /// Waits for the GPU by `CUpti_ActivitySynchronizationType`.
    pub waits: BTreeMap<u32, Tally>,
    /// Memory operations by `CUpti_ActivityMemoryKind` and `CUpti_ActivityMemoryOperationType`.
    pub memory: BTreeMap<(u32, u32), Total>,
    /// Memory pool operations by `CUpti_ActivityMemoryPoolOperationType`.
    pub pools: BTreeMap<u32, Total>,
    /// Functions by `CUpti_CallbackDomain` and callback id.
    pub functions: HashMap<(u32, u32), FunctionCalls>,
    /// Calls of functions beyond the limit on separate functions.
    pub other_calls: Tally,
    /// Overheads of tracing by `CUpti_ActivityOverheadKind`.
    pub overheads: BTreeMap<u32, Tally>,
    /// Runs of graphs that CUPTI reports as a whole.
    pub graphs: Tally,
    /// Number of NVTX marks and ranges.
    pub markers: u64,
    /// NVTX ranges, by name.
    pub ranges: NvtxRanges,
}

impl ProcessActivity {
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            first_ns: u64::MAX,
            ..Self::default()
        }
    }

    pub(super) fn batch(&mut self, batch: &ActivityBatch) {
        if batch.cupti_version != 0 {
            self.cupti_version = batch.cupti_version;
        }
        self.is_complete |= batch.is_last;
        self.records += batch.activities.len() as u64;
        batch.activities.iter().for_each(|one| self.activity(one));
    }

    fn activity(&mut self, activity: &Activity) {
        match &activity.record {
            ActivityRecord::Kernel(kernel) => self.kernel(kernel, activity.name.as_ref()),
            ActivityRecord::Memcpy(copy) => self.copy(copy),
            ActivityRecord::Memset(set) => self.set(set),
            ActivityRecord::Api(call) => self.call(call, activity.name.as_ref()),
            ActivityRecord::Sync(wait) => {
                self.saw(wait.start_ns, wait.end_ns);
                let tally = self.waits.entry(up_to(4, wait.sync_type)).or_default();
                tally.add(wait.start_ns, wait.end_ns);
            }
            ActivityRecord::Memory(memory) => {
                self.saw(memory.time_ns, memory.time_ns);
                let key = (up_to(7, memory.memory_kind), up_to(2, memory.operation));
                self.memory.entry(key).or_default().add(memory.size_bytes);
            }
            ActivityRecord::MemoryPool(pool) => {
                self.saw(pool.time_ns, pool.time_ns);
                let counted = self.pools.entry(up_to(3, pool.operation)).or_default();
                counted.add(pool.size_bytes);
            }
            ActivityRecord::GraphTrace(graph) => {
                let stream = (graph.context, graph.stream);
                let (start_ns, end_ns) = (graph.start_ns, graph.end_ns);
                self.work(WorkKind::Graph, graph.device, stream, start_ns, end_ns);
            }
            ActivityRecord::Overhead(overhead) => {
                let known = self.overheads.len() < MAX_OVERHEADS
                    || self.overheads.contains_key(&overhead.overhead_kind);
                let kind = if known { overhead.overhead_kind } else { 0 };
                let tally = self.overheads.entry(kind).or_default();
                tally.add(overhead.start_ns, overhead.end_ns);
            }
            ActivityRecord::Device(device) => {
                let name = activity.name.clone().unwrap_or_else(|| "?".into());
                self.device(device.device).described = Some((name, *device));
            }
            ActivityRecord::Context(context) if self.contexts.len() < MAX_LISTED => {
                self.contexts.insert(context.context, *context);
            }
            ActivityRecord::Stream(stream) if self.streams.len() < MAX_LISTED => {
                let key = (stream.context, stream.stream);
                self.streams.entry(key).or_default();
            }
            ActivityRecord::Marker(marker) => self.marker(marker, activity),
            _ => {}
        }
    }

    fn kernel(&mut self, kernel: &wire::Kernel, name: Option<&Arc<str>>) {
        let (start_ns, end_ns) = (kernel.start_ns, kernel.end_ns);
        self.kernels.add(name, kernel);
        let stream = (kernel.context, kernel.stream);
        self.work(WorkKind::Kernel, kernel.device, stream, start_ns, end_ns);
    }

    fn copy(&mut self, copy: &wire::Memcpy) {
        let (start_ns, end_ns) = (copy.start_ns, copy.end_ns);
        let direction = nsys::direction(copy.copy_kind);
        let which = CopyClass {
            direction,
            mode: (copy.flags & MODE_NOT_TOLD == 0)
                .then(|| mode_of(copy.flags & 1 != 0, direction, copy.size_bytes)),
            source: up_to(7, copy.source_kind),
            destination: up_to(7, copy.destination_kind),
        };
        let moved = self.copies.entry(which).or_default();
        moved.add(start_ns, end_ns, copy.size_bytes);
        let stream = (copy.context, copy.stream);
        self.work(WorkKind::Copy, copy.device, stream, start_ns, end_ns);
    }

    fn set(&mut self, set: &wire::Memset) {
        let (start_ns, end_ns) = (set.start_ns, set.end_ns);
        self.sets.add(start_ns, end_ns, set.size_bytes);
        let stream = (set.context, set.stream);
        self.work(WorkKind::Set, set.device, stream, start_ns, end_ns);
    }

    fn call(&mut self, call: &wire::Api, name: Option<&Arc<str>>) {
        self.saw(call.start_ns, call.end_ns);
        let key = (call.domain, call.cbid);
        if self.functions.len() >= MAX_CALLS && !self.functions.contains_key(&key) {
            self.other_calls.add(call.start_ns, call.end_ns);
            return;
        }
        let function = self.functions.entry(key).or_default();
        function.calls.add(call.start_ns, call.end_ns);
        function.failed += u64::from(call.result != 0);
        if function.name.is_none() {
            function.name = name.cloned();
        }
    }

    fn marker(&mut self, marker: &wire::Marker, activity: &Activity) {
        self.saw(marker.time_ns, marker.time_ns);
        self.markers += 1;
        if marker.flags & wire::marker::END != 0 {
            self.ranges.end(marker.id, marker.time_ns);
        } else if marker.flags & wire::marker::START != 0 {
            let domain = activity.qualifier.as_ref();
            let domain = domain.filter(|domain| !domain.is_empty());
            let name = activity.name.as_ref();
            self.ranges.begin(marker.id, domain, name, marker.time_ns);
        }
    }

    /// Adds work that a GPU ran on a stream of a context, which is not listed if there are too many.
    fn work(
        &mut self,
        kind: WorkKind,
        device: u32,
        stream: (u32, u32),
        start_ns: u64,
        end_ns: u64,
    ) {
        self.saw(start_ns, end_ns);
        if self.streams.len() < MAX_LISTED || self.streams.contains_key(&stream) {
            let tally = self.streams.entry(stream).or_default();
            tally.add(start_ns, end_ns);
        }
        let device = self.device(device);
        device.busy.add(kind, start_ns, end_ns);
        match kind {
            WorkKind::Kernel => device.kernels.add(start_ns, end_ns),
            WorkKind::Copy => device.copies.add(start_ns, end_ns),
            WorkKind::Set => device.sets.add(start_ns, end_ns),
            WorkKind::Graph => self.graphs.add(start_ns, end_ns),
        }
    }

    /// Device indices out of range share one entry.
    fn device(&mut self, device: u32) -> &mut DeviceActivity {
        let device = if device < u32::from(MAX_DEVICES) {
            device
        } else {
            wire::UNKNOWN_ID
        };
        self.devices.entry(device).or_default()
    }

    fn saw(&mut self, start_ns: u64, end_ns: u64) {
        if start_ns != 0 {
            self.first_ns = self.first_ns.min(start_ns);
        }
        self.last_ns = self.last_ns.max(end_ns);
    }

    pub(super) fn mark_reported(&mut self) {
        let is_over = self.end_reported;
        self.end_reported |= self.ended_ns.is_some();
        self.kernels.mark_reported();
        for device in self.devices.values_mut() {
            if is_over {
                device.busy.settle_all();
            }
            device.reported = device.busy.spent();
        }
    }
}

/// `number`, or 0, CUPTI's value for unknown, if it is greater than `last`, the last known one.
fn up_to<N: Copy + PartialOrd + Default>(last: N, number: N) -> N {
    if number <= last { number } else { N::default() }
}

#[cfg(test)]
mod tests;
