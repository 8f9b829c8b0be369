//! What the GPU did and when.

pub mod lines;
pub(super) mod names;
pub(super) mod sums;

use std::cmp::Reverse;

use serde::Serialize;

use super::Options;
use crate::activity::wire;
use crate::state::Activities;
use crate::state::activity::busy::Gaps;
use crate::state::activity::process::{Device, Function, Process, WhichCopies};
use crate::state::activity::tally::{Moved, Tally};

/// What CUPTI has told, over all processes since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ActivitySummary {
    /// Records.
    pub records: u64,
    /// Processes that ended long ago and are not listed any more.
    pub forgotten_processes: u64,
    /// Those that CUPTI has told anything of.
    pub processes: Vec<ProcessSummary>,
}

/// What the GPU did for a process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessSummary {
    /// Process id.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name, if known.
    pub comm: Option<String>,
    /// It has ended, or runs another program now.
    pub exited: bool,
    /// Everything that CUPTI had to tell has been told. A process that is killed takes with it
    /// what CUPTI had not handed over.
    pub complete: bool,
    /// What `cuptiGetVersion` says there.
    pub cupti_version: u32,
    /// Records.
    pub records: u64,
    /// From the first time in any record until now, or until the process ended.
    pub observed_seconds: f64,
    /// GPUs, as CUDA numbers them in the process.
    pub devices: Vec<DeviceSummary>,
    /// Contexts.
    pub contexts: Vec<ContextSummary>,
    /// Streams that something ran on, and those that were created.
    pub streams: Vec<StreamSummary>,
    /// Kernels, most time first; `--top` limits their number.
    pub kernels: Vec<KernelSummary>,
    /// Those left out by `--top`.
    pub omitted_kernels: u64,
    /// Copies and memory sets.
    pub copies: Vec<CopySummary>,
    /// Waits for the GPU.
    pub synchronizations: Vec<Timed>,
    /// Allocations and releases.
    pub memory: Vec<MemorySummary>,
    /// What was done to memory pools.
    pub memory_pools: Vec<MemorySummary>,
    /// Calls of the driver and the runtime, most time first; `--top` limits their number.
    pub calls: Vec<CallSummary>,
    /// Functions left out by `--top`.
    pub omitted_functions: u64,
    /// What tracing itself took.
    pub overhead: Vec<Timed>,
    /// Runs of whole graphs.
    pub graphs: Times,
    /// Moments and ranges that the program marked.
    pub markers: u64,
}

/// How often, and how long.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// All together, nanoseconds.
    pub total_ns: u64,
    /// On average, nanoseconds; 0 if there are none.
    pub mean_ns: f64,
    /// The shortest, nanoseconds.
    pub min_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
}

/// Times of something that has a name.
#[derive(Clone, Debug, Serialize)]
pub struct Timed {
    /// What.
    pub kind: &'static str,
    /// How often, and how long.
    #[serde(flatten)]
    pub times: Times,
}

/// A GPU, for a process.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceSummary {
    /// As CUDA numbers it in the process; none if that makes no sense.
    pub device: Option<u32>,
    /// What it is called, if CUPTI was asked.
    pub name: Option<String>,
    /// Its UUID, if CUPTI was asked.
    pub uuid: Option<String>,
    /// Time in which at least one kernel, copy or set of the process ran.
    pub busy_ns: u64,
    /// That, of the time for which the process was observed.
    pub busy_share: f64,
    /// The share since the last report.
    pub recent_busy_share: f64,
    /// From the first to the last of them, times in which none ran.
    pub gaps: GapSummary,
    /// Kernels: their times add up to more than `busy_ns` where they run side by side.
    pub kernels: Times,
    /// Copies.
    pub copies: Times,
    /// Memory sets.
    pub sets: Times,
    /// What came so late that its time is missing from `busy_ns`.
    pub late_records: u64,
}

/// Times in which nothing ran.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GapSummary {
    /// How many.
    pub count: u64,
    /// All together, nanoseconds.
    pub total_ns: u64,
    /// Nanoseconds.
    pub longest_ns: u64,
    /// `[ns, gaps]`, for gaps of less than `ns` and at least half of it.
    pub by_length: Vec<[u64; 2]>,
}

/// A context.
#[derive(Clone, Debug, Serialize)]
pub struct ContextSummary {
    /// CUPTI's number of it.
    pub context: u32,
    /// The GPU that it is on.
    pub device: u32,
    /// Its null stream.
    pub null_stream: u32,
}

/// What ran on a stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamSummary {
    /// CUPTI's number of its context.
    pub context: u32,
    /// CUPTI's number of it.
    pub stream: u32,
    /// Kernels, copies and sets.
    #[serde(flatten)]
    pub times: Times,
}

/// A kernel of a process.
#[derive(Clone, Debug, Serialize)]
pub struct KernelSummary {
    /// The name as its source has it.
    pub name: String,
    /// The name as the compiler has it.
    pub mangled: Option<String>,
    /// Its runs.
    #[serde(flatten)]
    pub times: Times,
    /// Its share of the time of all kernels of the process.
    pub share: f64,
    /// Runs per second since the last report.
    pub per_second: f64,
    /// Blocks of the first run.
    pub grid: [u32; 3],
    /// Threads per block of the first run.
    pub block: [u32; 3],
    /// Registers per thread of the first run.
    pub registers_per_thread: u16,
    /// Shared memory per block of the first run.
    pub shared_memory_bytes: u64,
}

/// Copies of a process between two memories, or its memory sets.
#[derive(Clone, Debug, Serialize)]
pub struct CopySummary {
    /// As in the reports of copies.
    pub direction: &'static str,
    /// As in the reports of copies; none for sets.
    pub mode: Option<&'static str>,
    /// What memory was read; none for sets.
    pub source: Option<&'static str>,
    /// What memory was written; none for sets.
    pub destination: Option<&'static str>,
    /// Their times on the GPU.
    #[serde(flatten)]
    pub times: Times,
    /// Bytes.
    pub bytes: u64,
    /// Bytes per second of that time.
    pub bytes_per_second: Option<f64>,
    /// The fastest.
    pub peak_bytes_per_second: Option<f64>,
}

/// Operations on memory.
#[derive(Clone, Debug, Serialize)]
pub struct MemorySummary {
    /// What memory; none for pools.
    pub kind: Option<&'static str>,
    /// What was done.
    pub operation: &'static str,
    /// How often.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A function, and its calls.
#[derive(Clone, Debug, Serialize)]
pub struct CallSummary {
    /// `driver`, `runtime`, ...
    pub domain: &'static str,
    /// What it is called, or its number.
    pub name: String,
    /// Its calls.
    #[serde(flatten)]
    pub times: Times,
    /// Those that returned an error.
    pub failed: u64,
}

impl From<&Tally> for Times {
    fn from(tally: &Tally) -> Self {
        Self {
            count: tally.count,
            total_ns: tally.total_ns,
            mean_ns: tally.total_ns as f64 / tally.count.max(1) as f64,
            min_ns: tally.min_ns,
            max_ns: tally.max_ns,
        }
    }
}

/// Makes the report of what the GPU did.
pub(super) fn build(activities: &Activities, options: &Options) -> ActivitySummary {
    let all: Vec<_> = activities.processes().map(|(_, process)| process).collect();
    let shown = all
        .iter()
        .filter(|process| options.is_final || !process.end_reported);
    ActivitySummary {
        records: all.iter().map(|process| process.records).sum(),
        forgotten_processes: activities.forgotten,
        processes: shown.map(|process| summary(process, options)).collect(),
    }
}

fn summary(process: &Process, options: &Options) -> ProcessSummary {
    let end_ns = process
        .ended_ns
        .unwrap_or(options.now_ns)
        .max(process.last_ns);
    let observed_ns = end_ns.saturating_sub(process.first_ns);
    let (kernels, omitted_kernels) = kernels(process, options);
    let (calls, omitted_functions) = calls(process, options);
    ProcessSummary {
        pid: process.pid,
        uid: process.uid,
        comm: process.comm.clone(),
        exited: process.ended_ns.is_some(),
        complete: process.is_complete,
        cupti_version: process.cupti_version,
        records: process.records,
        observed_seconds: observed_ns as f64 / 1e9,
        devices: process
            .devices
            .iter()
            .map(|(number, device)| self::device(*number, device, observed_ns, options))
            .collect(),
        contexts: process.contexts.values().map(context).collect(),
        streams: process
            .streams
            .iter()
            .map(|(&(context, stream), tally)| StreamSummary {
                context,
                stream,
                times: tally.into(),
            })
            .collect(),
        kernels,
        omitted_kernels,
        copies: copies(process),
        synchronizations: timed(&process.waits, names::wait),
        memory: process
            .memory
            .iter()
            .map(|(&(kind, operation), counted)| MemorySummary {
                kind: Some(names::memory(kind)),
                operation: names::memory_operation(operation),
                count: counted.count,
                bytes: counted.bytes,
            })
            .collect(),
        memory_pools: process
            .pools
            .iter()
            .map(|(&operation, counted)| MemorySummary {
                kind: None,
                operation: names::pool_operation(operation),
                count: counted.count,
                bytes: counted.bytes,
            })
            .collect(),
        calls,
        omitted_functions,
        overhead: timed(&process.overheads, names::overhead),
        graphs: (&process.graphs).into(),
        markers: process.markers,
    }
}

fn timed(
    tallies: &std::collections::BTreeMap<u32, Tally>,
    name: fn(u32) -> &'static str,
) -> Vec<Timed> {
    let one = |(&kind, tally): (&u32, &Tally)| Timed {
        kind: name(kind),
        times: tally.into(),
    };
    tallies.iter().map(one).collect()
}

fn device(number: u32, device: &Device, observed_ns: u64, options: &Options) -> DeviceSummary {
    let sums = device.busy.sums();
    let share = |ns: u64, of_ns: u64| (ns as f64 / of_ns.max(1) as f64).min(1.0);
    let since_last = u64::try_from(options.since_last.as_nanos()).unwrap_or(u64::MAX);
    DeviceSummary {
        device: (number != wire::UNKNOWN_ID).then_some(number),
        name: device.described.as_ref().map(|(name, _)| name.to_string()),
        uuid: device.described.as_ref().map(|(_, d)| names::uuid(&d.uuid)),
        busy_ns: sums.busy_ns,
        busy_share: share(sums.busy_ns, observed_ns),
        recent_busy_share: share(sums.busy_ns.saturating_sub(device.reported_ns), since_last),
        gaps: gaps(&sums.gaps),
        kernels: (&device.kernels).into(),
        copies: (&device.copies).into(),
        sets: (&device.sets).into(),
        late_records: device.busy.late,
    }
}

fn gaps(gaps: &Gaps) -> GapSummary {
    let slots = (0u32..).zip(gaps.by_length).filter(|(_, count)| *count > 0);
    GapSummary {
        count: gaps.count,
        total_ns: gaps.total_ns,
        longest_ns: gaps.longest_ns,
        by_length: slots
            .map(|(slot, count)| [1u64.checked_shl(slot).unwrap_or(u64::MAX), count])
            .collect(),
    }
}

fn context(context: &wire::Context) -> ContextSummary {
    ContextSummary {
        context: context.context,
        device: context.device,
        null_stream: context.null_stream.into(),
    }
}

/// Those that are listed, and how many are not.
fn kernels(process: &Process, options: &Options) -> (Vec<KernelSummary>, u64) {
    let (unnamed, others) = (&process.kernels.unnamed, &process.kernels.others);
    let mut sorted: Vec<_> = process.kernels.iter().collect();
    let total_ns = sorted
        .iter()
        .map(|kernel| kernel.runs.total_ns)
        .chain([unnamed.total_ns, others.total_ns])
        .fold(0u64, u64::saturating_add);
    let share = |tally: &Tally| tally.total_ns as f64 / total_ns.max(1) as f64;
    let seconds = options.since_last.as_secs_f64().max(1e-9);
    sorted.sort_by_key(|kernel| (Reverse(kernel.runs.total_ns), Reverse(kernel.runs.count)));
    let top = options.top.unwrap_or(usize::MAX);
    let omitted = sorted.len().saturating_sub(top) as u64;
    let named = sorted.into_iter().take(top).map(|kernel| KernelSummary {
        name: kernel.name.to_string(),
        mangled: Some(kernel.mangled.to_string()),
        times: (&kernel.runs).into(),
        share: share(&kernel.runs),
        per_second: (kernel.runs.count - kernel.reported) as f64 / seconds,
        grid: kernel.grid,
        block: kernel.block,
        registers_per_thread: kernel.registers_per_thread,
        shared_memory_bytes: kernel.shared_memory,
    });
    let rest = [(unnamed, "(no name)"), (others, "(other kernels)")];
    let rest = rest.into_iter().filter(|(tally, _)| tally.count > 0);
    let rest = rest.map(|(tally, name)| KernelSummary {
        name: name.to_owned(),
        mangled: None,
        times: tally.into(),
        share: share(tally),
        per_second: 0.0,
        grid: [0; 3],
        block: [0; 3],
        registers_per_thread: 0,
        shared_memory_bytes: 0,
    });
    (named.chain(rest).collect(), omitted)
}

fn copies(process: &Process) -> Vec<CopySummary> {
    let summary = |moved: &Moved, which: Option<&WhichCopies>| CopySummary {
        direction: which.map_or("set", |which| which.direction.name()),
        mode: which.map(|which| which.mode.name()),
        source: which.map(|which| names::memory(which.source.into())),
        destination: which.map(|which| names::memory(which.destination.into())),
        times: (&moved.tally).into(),
        bytes: moved.bytes,
        bytes_per_second: moved.bytes_per_second(),
        peak_bytes_per_second: (moved.tally.total_ns > 0).then_some(moved.peak_bytes_per_second),
    };
    let sets = (process.sets.tally.count > 0).then(|| summary(&process.sets, None));
    let copies = process.copies.iter();
    let copies = copies.map(|(which, moved)| summary(moved, Some(which)));
    copies.chain(sets).collect()
}

/// Those that are listed, and how many are not.
fn calls(process: &Process, options: &Options) -> (Vec<CallSummary>, u64) {
    let mut sorted: Vec<_> = process.functions.iter().collect();
    sorted.sort_by_key(|(key, function)| (Reverse(function.calls.total_ns), **key));
    let top = options.top.unwrap_or(usize::MAX);
    let omitted = sorted.len().saturating_sub(top) as u64;
    let one = |(&(domain, cbid), function): (&(u32, u32), &Function)| CallSummary {
        domain: names::domain(domain),
        name: function
            .name
            .as_ref()
            .map_or_else(|| format!("function {cbid}"), ToString::to_string),
        times: (&function.calls).into(),
        failed: function.failed,
    };
    let other = (process.other_calls.count > 0).then(|| CallSummary {
        domain: names::domain(0),
        name: "(other functions)".to_owned(),
        times: (&process.other_calls).into(),
        failed: 0,
    });
    (
        sorted.into_iter().take(top).map(one).chain(other).collect(),
        omitted,
    )
}
