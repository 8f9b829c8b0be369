//! What the GPU did for one process.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use super::by_work::{ByWork, Spent, Work};
use super::kernels::Kernels;
use super::ranges::Ranges;
use super::tally::{Moved, Tally};
use crate::transfers::{Mode, mode_of};
use gpuprobe_cuda::{Direction, nsys};
use gpuprobe_model::activity::{Activity, Batch, Record};
use gpuprobe_model::event::MAX_DEVICES;
use gpuprobe_wire as wire;

/// In the flags of a copy, of which CUPTI uses the lowest: whether the call was synchronous is not
/// known, as in the rows of an Nsight Systems export.
pub const MODE_NOT_TOLD: u8 = 1 << 7;
/// Contexts and streams of a process that are listed.
const MAX_LISTED: usize = 4096;
/// Functions that are told apart, and kinds of overhead.
const MAX_CALLS: usize = 8192;
const MAX_OVERHEADS: usize = 64;

/// A GPU, for one process.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// What CUPTI says of it, if that was asked for.
    pub described: Option<(Arc<str>, wire::Device)>,
    /// When kernels, copies and sets ran on it.
    pub busy: ByWork,
    /// Its busy time when the last report was made.
    pub reported: Spent,
    /// Kernels, whichever ran side by side.
    pub kernels: Tally,
    /// Copies.
    pub copies: Tally,
    /// Memory sets.
    pub sets: Tally,
}

/// Which copies are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WhichCopies {
    /// Between which memories.
    pub direction: Direction,
    /// What the time of the call means; `None` where nobody tells.
    pub mode: Option<Mode>,
    /// `CUpti_ActivityMemoryKind` of the source; 0 if it is none that is known.
    pub source: u8,
    /// The same of the destination.
    pub destination: u8,
}

/// A function of the driver or the runtime, and its calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// What it is called, if the collector has said so.
    pub name: Option<Arc<str>>,
    /// Its calls.
    pub calls: Tally,
    /// Those that returned an error.
    pub failed: u64,
}

/// Times that something was done, and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// How often.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What the GPU did for one process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name, if known.
    pub comm: Option<String>,
    /// When it ended, or began to run another program, `CLOCK_MONOTONIC` nanoseconds.
    pub ended_ns: Option<u64>,
    /// A report has shown its end.
    pub end_reported: bool,
    /// The collector has handed over everything, and ended.
    pub is_complete: bool,
    /// What `cuptiGetVersion` says there.
    pub cupti_version: u32,
    /// Records.
    pub records: u64,
    /// The earliest time in any of them; `u64::MAX` if there is none.
    pub first_ns: u64,
    /// The latest.
    pub last_ns: u64,
    /// By number, as CUDA numbers them in the process.
    pub devices: BTreeMap<u32, Device>,
    /// By CUPTI's number.
    pub contexts: BTreeMap<u32, wire::Context>,
    /// Streams by context and CUPTI's number: what ran on them.
    pub streams: BTreeMap<(u32, u32), Tally>,
    /// Kernels by name.
    pub kernels: Kernels,
    /// Copies.
    pub copies: BTreeMap<WhichCopies, Moved>,
    /// Memory sets.
    pub sets: Moved,
    /// Waits by `CUpti_ActivitySynchronizationType`.
    pub waits: BTreeMap<u32, Tally>,
    /// By `CUpti_ActivityMemoryKind` and `CUpti_ActivityMemoryOperationType`.
    pub memory: BTreeMap<(u32, u32), Counted>,
    /// By `CUpti_ActivityMemoryPoolOperationType`.
    pub pools: BTreeMap<u32, Counted>,
    /// By `CUpti_CallbackDomain` and number.
    pub functions: HashMap<(u32, u32), Function>,
    /// Calls of functions beyond those that are told apart.
    pub other_calls: Tally,
    /// By `CUpti_ActivityOverheadKind`.
    pub overheads: BTreeMap<u32, Tally>,
    /// Runs of whole graphs.
    pub graphs: Tally,
    /// Moments and ranges that the program marked.
    pub markers: u64,
    /// The ranges among them.
    pub ranges: Ranges,
}

impl Process {
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            first_ns: u64::MAX,
            ..Self::default()
        }
    }

    pub(super) fn batch(&mut self, batch: &Batch) {
        if batch.cupti_version != 0 {
            self.cupti_version = batch.cupti_version;
        }
        self.is_complete |= batch.is_last;
        self.records += batch.activities.len() as u64;
        batch.activities.iter().for_each(|one| self.activity(one));
    }

    fn activity(&mut self, activity: &Activity) {
        match &activity.record {
            Record::Kernel(kernel) => self.kernel(kernel, activity.name.as_ref()),
            Record::Memcpy(copy) => self.copy(copy),
            Record::Memset(set) => self.set(set),
            Record::Api(call) => self.call(call, activity.name.as_ref()),
            Record::Sync(wait) => {
                self.saw(wait.start_ns, wait.end_ns);
                let tally = self.waits.entry(up_to(4, wait.sync_type)).or_default();
                tally.add(wait.start_ns, wait.end_ns);
            }
            Record::Memory(memory) => {
                self.saw(memory.time_ns, memory.time_ns);
                let key = (up_to(7, memory.memory_kind), up_to(2, memory.operation));
                self.memory.entry(key).or_default().add(memory.size_bytes);
            }
            Record::MemoryPool(pool) => {
                self.saw(pool.time_ns, pool.time_ns);
                let counted = self.pools.entry(up_to(3, pool.operation)).or_default();
                counted.add(pool.size_bytes);
            }
            Record::GraphTrace(graph) => {
                self.saw(graph.start_ns, graph.end_ns);
                self.graphs.add(graph.start_ns, graph.end_ns);
                self.stream(graph.context, graph.stream, graph.start_ns, graph.end_ns);
                let busy = &mut self.device(graph.device).busy;
                busy.add(Work::Graph, graph.start_ns, graph.end_ns);
            }
            Record::Overhead(overhead) => {
                let known = self.overheads.len() < MAX_OVERHEADS
                    || self.overheads.contains_key(&overhead.overhead_kind);
                let kind = if known { overhead.overhead_kind } else { 0 };
                let tally = self.overheads.entry(kind).or_default();
                tally.add(overhead.start_ns, overhead.end_ns);
            }
            Record::Device(device) => {
                let name = activity.name.clone().unwrap_or_else(|| "?".into());
                self.device(device.device).described = Some((name, *device));
            }
            Record::Context(context) => {
                if self.contexts.len() < MAX_LISTED {
                    self.contexts.insert(context.context, *context);
                }
            }
            Record::Stream(stream) => {
                if self.streams.len() < MAX_LISTED {
                    self.streams
                        .entry((stream.context, stream.stream))
                        .or_default();
                }
            }
            Record::Marker(marker) => {
                self.marker(marker, activity);
            }
            Record::Name(_) | Record::ExternalCorrelation(_) => {}
        }
    }

    fn kernel(&mut self, kernel: &wire::Kernel, name: Option<&Arc<str>>) {
        let (start_ns, end_ns) = (kernel.start_ns, kernel.end_ns);
        self.saw(start_ns, end_ns);
        self.kernels.add(name, start_ns, end_ns, |described| {
            described.grid = kernel.grid;
            described.block = kernel.block;
            described.registers_per_thread = kernel.registers_per_thread;
            described.shared_memory =
                u64::from(kernel.static_shared_memory) + u64::from(kernel.dynamic_shared_memory);
        });
        self.stream(kernel.context, kernel.stream, start_ns, end_ns);
        let device = self.device(kernel.device);
        device.kernels.add(start_ns, end_ns);
        device.busy.add(Work::Kernel, start_ns, end_ns);
    }

    fn copy(&mut self, copy: &wire::Memcpy) {
        let (start_ns, end_ns) = (copy.start_ns, copy.end_ns);
        self.saw(start_ns, end_ns);
        let direction = nsys::direction(copy.copy_kind);
        let which = WhichCopies {
            direction,
            mode: (copy.flags & MODE_NOT_TOLD == 0)
                .then(|| mode_of(copy.flags & 1 != 0, direction, copy.size_bytes)),
            source: up_to(7, copy.source_kind),
            destination: up_to(7, copy.destination_kind),
        };
        let moved = self.copies.entry(which).or_default();
        moved.add(start_ns, end_ns, copy.size_bytes);
        self.stream(copy.context, copy.stream, start_ns, end_ns);
        let device = self.device(copy.device);
        device.copies.add(start_ns, end_ns);
        device.busy.add(Work::Copy, start_ns, end_ns);
    }

    fn set(&mut self, set: &wire::Memset) {
        let (start_ns, end_ns) = (set.start_ns, set.end_ns);
        self.saw(start_ns, end_ns);
        self.sets.add(start_ns, end_ns, set.size_bytes);
        self.stream(set.context, set.stream, start_ns, end_ns);
        let device = self.device(set.device);
        device.sets.add(start_ns, end_ns);
        device.busy.add(Work::Set, start_ns, end_ns);
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

    /// What runs on a stream.
    fn stream(&mut self, context: u32, stream: u32, start_ns: u64, end_ns: u64) {
        let key = (context, stream);
        if let Some(tally) = self.streams.get_mut(&key) {
            tally.add(start_ns, end_ns);
        } else if self.streams.len() < MAX_LISTED {
            self.streams.entry(key).or_default().add(start_ns, end_ns);
        }
    }

    /// Numbers beyond those that there can be are one device.
    fn device(&mut self, device: u32) -> &mut Device {
        let device = if device < u32::from(MAX_DEVICES) {
            device
        } else {
            wire::UNKNOWN_ID
        };
        let count = self.devices.len();
        let device = self.devices.entry(device).or_default();
        device.busy.shares_with(count);
        device
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
            } else {
                device.busy.sort_in();
            }
            device.reported = device.busy.spent();
        }
    }
}

impl Counted {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// A number of CUPTI's, or 0, which it has for what is not known, if it is beyond the last that we
/// know.
fn up_to<N: Copy + PartialOrd + Default>(last: N, number: N) -> N {
    if number <= last { number } else { N::default() }
}
