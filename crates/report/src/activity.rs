//! Report of GPU activity, from CUPTI.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::Options;
use crate::words::Who;
use gpuprobe_cuda::{kinds, nsys};
use gpuprobe_engine::GpuActivity;
use gpuprobe_engine::activity::busy::Gaps;
use gpuprobe_engine::activity::by_work::Spent;
use gpuprobe_engine::activity::process::{
    CopyClass, DeviceActivity, FunctionCalls, ProcessActivity,
};
use gpuprobe_engine::activity::tally::{Moved, Tally};
use gpuprobe_engine::totals::Total;
use gpuprobe_engine::transfers::Mode;
use gpuprobe_model::link::PcieLink;
use gpuprobe_wire as wire;

/// GPU activity of all processes since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ActivitySummary {
    /// Number of activity records received.
    pub records: u64,
    /// Number of ended processes that are no longer listed.
    pub forgotten_processes: u64,
    /// The host's link to its GPUs, if all have the same and it is known.
    pub link: Option<PcieLink>,
    /// Processes with activity records.
    pub processes: Vec<ProcessSummary>,
}

/// GPU activity of a process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessSummary {
    /// The process.
    #[serde(flatten)]
    pub who: Who,
    /// Whether it has ended or called `exec`.
    pub exited: bool,
    /// Whether all records have been received. If a process is killed, records that CUPTI had not
    /// handed over are lost.
    pub complete: bool,
    /// Version that `cuptiGetVersion` returns in the process.
    pub cupti_version: u32,
    /// Number of activity records received.
    pub records: u64,
    /// Seconds from the first time in any record until now, or until the end of the process.
    pub observed_seconds: f64,
    /// GPUs by device index, as CUDA numbers them in the process.
    pub devices: Vec<DeviceSummary>,
    /// Contexts of the process.
    pub contexts: Vec<ContextSummary>,
    /// Streams that were created or that ran work.
    pub streams: Vec<StreamSummary>,
    /// Kernels, by descending time; `--top` limits their number.
    pub kernels: Vec<KernelSummary>,
    /// Number of kernels omitted by `--top`.
    pub omitted_kernels: u64,
    /// Copies and memory sets.
    pub copies: Vec<CopySummary>,
    /// Waits for the GPU.
    pub synchronizations: Vec<Timed>,
    /// Memory allocations and releases.
    pub memory: Vec<MemorySummary>,
    /// Operations on memory pools.
    pub memory_pools: Vec<MemorySummary>,
    /// Calls of the driver and the runtime, by descending time; `--top` limits their number.
    pub calls: Vec<CallSummary>,
    /// Number of functions omitted by `--top`.
    pub omitted_functions: u64,
    /// Overhead of CUPTI's tracing.
    pub overhead: Vec<Timed>,
    /// Runs of graphs that CUPTI reports as a whole.
    pub graphs: Times,
    /// Number of NVTX marks and ranges.
    pub markers: u64,
    /// NVTX ranges, by descending time; `--top` limits their number.
    pub ranges: Vec<RangeSummary>,
    /// Number of range names omitted by `--top`.
    pub omitted_ranges: u64,
    /// Number of ranges that have not ended.
    pub open_ranges: u64,
}

/// Number and durations of operations.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Times {
    /// Number of operations counted.
    pub count: u64,
    /// Sum of the durations, nanoseconds.
    pub total_ns: u64,
    /// Mean duration, nanoseconds; 0 if there are none.
    pub mean_ns: f64,
    /// Median duration, nanoseconds, within 1 %.
    pub median_ns: u64,
    /// 99th percentile of the durations, nanoseconds, within 1 %.
    pub p99_ns: u64,
    /// The shortest duration, nanoseconds.
    pub min_ns: u64,
    /// The longest duration, nanoseconds.
    pub max_ns: u64,
    /// Source of the figures above.
    #[serde(skip)]
    tally: Tally,
}

impl Times {
    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.tally.merge(&other.tally);
        *self = (&self.tally).into();
    }
}

impl From<&Tally> for Times {
    fn from(tally: &Tally) -> Self {
        Self {
            count: tally.count,
            total_ns: tally.total_ns,
            mean_ns: tally.total_ns as f64 / tally.count.max(1) as f64,
            median_ns: tally.quantile(0.5),
            p99_ns: tally.quantile(0.99),
            min_ns: tally.min_ns,
            max_ns: tally.max_ns,
            tally: tally.clone(),
        }
    }
}

/// `ns` as a share of `all_ns`, 0 to 1.
pub(crate) fn share(ns: u64, all_ns: u64) -> f64 {
    (ns as f64 / all_ns.max(1) as f64).min(1.0)
}

/// Times of a named kind of operation.
#[derive(Clone, Debug, Serialize)]
pub struct Timed {
    /// Name of the kind.
    pub kind: &'static str,
    /// Number and durations of the operations.
    #[serde(flatten)]
    pub times: Times,
    /// Share of the total time of the list, 0 to 1.
    pub share: f64,
}

/// Busy and idle time of a GPU as shares of a period, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BusyShares {
    /// Share with at least one kernel.
    pub kernels: f64,
    /// Share with at least one copy.
    pub copies: f64,
    /// Share with at least one memory set.
    pub sets: f64,
    /// Share with at least one graph that CUPTI reports as a whole.
    pub graphs: f64,
    /// Share with none of these.
    pub idle: f64,
}

impl BusyShares {
    /// The shares of a period of `of_ns` nanoseconds.
    pub fn of(spent: &Spent, of_ns: u64) -> Self {
        Self {
            kernels: share(spent.kernel_ns, of_ns),
            copies: share(spent.copy_ns, of_ns),
            sets: share(spent.set_ns, of_ns),
            graphs: share(spent.graph_ns, of_ns),
            idle: 1.0 - share(spent.any_ns, of_ns),
        }
    }
}

/// Activity of a GPU within a process.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceSummary {
    /// Device index as CUDA numbers it in the process; `None` if it is out of range.
    pub device: Option<u32>,
    /// Name of the GPU, if CUPTI was queried.
    pub name: Option<String>,
    /// UUID of the GPU, if CUPTI was queried.
    pub uuid: Option<String>,
    /// Time with at least one kernel, copy or set of the process, nanoseconds.
    pub busy_ns: u64,
    /// `busy_ns` as a share of the time for which the process was observed.
    pub busy_share: f64,
    /// The same share since the last report.
    pub recent_busy_share: f64,
    /// Busy time by kind of work.
    #[serde(flatten)]
    pub work: Spent,
    /// Busy and idle shares of the time for which the process was observed.
    pub shares: BusyShares,
    /// The same shares since the last report.
    pub recent_shares: BusyShares,
    /// Seconds since the last report.
    #[serde(skip)]
    pub recent_seconds: f64,
    /// Idle gaps between the first and the last work.
    pub gaps: Gaps,
    /// Kernels; their times add up to more than `busy_ns` where they run concurrently.
    pub kernels: Times,
    /// Number and durations of copies.
    pub copies: Times,
    /// Number and durations of memory sets.
    pub sets: Times,
    /// Number of records that arrived too late to be counted in `busy_ns`.
    pub late_records: u64,
}

/// A CUDA context of the process.
#[derive(Clone, Debug, Serialize)]
pub struct ContextSummary {
    /// CUPTI's id of the context.
    pub context: u32,
    /// Device index of its GPU.
    pub device: u32,
    /// CUPTI's id of its null stream.
    pub null_stream: u32,
}

/// Work run on a stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamSummary {
    /// CUPTI's id of its context.
    pub context: u32,
    /// CUPTI's id of the stream.
    pub stream: u32,
    /// Kernels, copies and sets on the stream.
    #[serde(flatten)]
    pub times: Times,
}

/// A kernel of a process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KernelSummary {
    /// Demangled name, as in the source.
    pub name: String,
    /// Mangled name, as the compiler emits it.
    pub mangled: Option<String>,
    /// Number and durations of its runs.
    #[serde(flatten)]
    pub times: Times,
    /// Share of the time of all kernels of the process, 0 to 1.
    pub share: f64,
    /// Runs per second since the last report.
    pub per_second: f64,
    /// Blocks of the first run, in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block of the first run, in x, y and z.
    pub block: [u32; 3],
    /// Registers per thread of the first run.
    pub registers_per_thread: u16,
    /// Shared memory per block of the first run, bytes.
    pub shared_memory_bytes: u64,
}

/// Copies of a process between two kinds of memory, or its memory sets.
#[derive(Clone, Debug, Serialize)]
pub struct CopySummary {
    /// Direction, as in the report of copies.
    pub direction: &'static str,
    /// Mode, as in the report of copies; `None` for sets, and for files without it.
    pub mode: Option<&'static str>,
    /// Kind of the source memory; `None` for sets.
    pub source: Option<&'static str>,
    /// Kind of the destination memory; `None` for sets.
    pub destination: Option<&'static str>,
    /// Number of the operations and their durations on the GPU.
    #[serde(flatten)]
    pub times: Times,
    /// Sum of the bytes.
    pub bytes: u64,
    /// Bytes per second of GPU time.
    pub bytes_per_second: Option<f64>,
    /// Throughput of the fastest operation, bytes per second.
    pub peak_bytes_per_second: Option<f64>,
    /// `bytes_per_second` as a share of the link's capacity in one direction; `None` if the copies
    /// do not cross the link or it is unknown.
    pub link_utilisation: Option<f64>,
}

/// Memory operations of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct MemorySummary {
    /// Kind of memory; `None` for pools.
    pub kind: Option<&'static str>,
    /// Name of the operation.
    pub operation: &'static str,
    /// Number of operations counted.
    pub count: u64,
    /// Sum of their bytes.
    pub bytes: u64,
}

/// Calls of a driver or runtime function.
#[derive(Clone, Debug, Serialize)]
pub struct CallSummary {
    /// API of the function: `driver`, `runtime`, ...
    pub domain: &'static str,
    /// Name of the function, or its callback id.
    pub name: String,
    /// Number and durations of its calls.
    #[serde(flatten)]
    pub times: Times,
    /// Number of calls that returned an error.
    pub failed: u64,
    /// Share of the time of all calls of the process, 0 to 1.
    pub share: f64,
}

/// NVTX ranges of one domain and name.
#[derive(Clone, Debug, Serialize)]
pub struct RangeSummary {
    /// Domain; `None` for the default domain.
    pub domain: Option<String>,
    /// Name of the ranges.
    pub name: String,
    /// Ended ranges. Nested ranges of the same name are counted separately.
    #[serde(flatten)]
    pub times: Times,
    /// Share of the time of all ranges of the process, 0 to 1.
    pub share: f64,
}

/// Builds the report of GPU activity.
pub(crate) fn build(activities: &GpuActivity, options: &Options) -> ActivitySummary {
    let all: Vec<_> = activities.processes().map(|(_, process)| process).collect();
    let shown = all
        .iter()
        .filter(|process| options.is_final || !process.end_reported);
    ActivitySummary {
        records: all.iter().map(|process| process.records).sum(),
        forgotten_processes: activities.forgotten,
        link: options.link,
        processes: shown.map(|process| summary(process, options)).collect(),
    }
}

fn summary(process: &ProcessActivity, options: &Options) -> ProcessSummary {
    let end_ns = process.ended_ns.unwrap_or(options.now_ns);
    let observed_ns = end_ns.max(process.last_ns).saturating_sub(process.first_ns);
    let devices = process.devices.iter();
    let devices = devices.map(|(&number, one)| device(number, one, observed_ns, options));
    let contexts = process.contexts.values().map(|context| ContextSummary {
        context: context.context,
        device: context.device,
        null_stream: context.null_stream.into(),
    });
    let streams = process.streams.iter();
    let streams = streams.map(|(&(context, stream), tally)| StreamSummary {
        context,
        stream,
        times: tally.into(),
    });
    let counted = |kind, operation, counted: &Total| MemorySummary {
        kind,
        operation,
        count: counted.allocations,
        bytes: counted.bytes,
    };
    let memory = process.memory.iter().map(|(&(kind, operation), sums)| {
        let kind = kinds::of_cupti(kind).long;
        counted(Some(kind), nsys::MEMORY_OPERATIONS.name(operation), sums)
    });
    let pools = process.pools.iter();
    let pools =
        pools.map(|(&operation, sums)| counted(None, nsys::POOL_OPERATIONS.name(operation), sums));
    let (kernels, omitted_kernels) = kernels(process, options);
    let (calls, omitted_functions) = calls(process, options);
    let (ranges, omitted_ranges) = ranges(process, options);
    ProcessSummary {
        who: Who::named(process.pid, process.uid, process.comm.as_deref()),
        exited: process.ended_ns.is_some(),
        complete: process.is_complete,
        cupti_version: process.cupti_version,
        records: process.records,
        observed_seconds: observed_ns as f64 / 1e9,
        devices: devices.collect(),
        contexts: contexts.collect(),
        streams: streams.collect(),
        kernels,
        omitted_kernels,
        copies: copies(process, options),
        synchronizations: timed(&process.waits, &nsys::WAITS),
        memory: memory.collect(),
        memory_pools: pools.collect(),
        calls,
        omitted_functions,
        overhead: timed(&process.overheads, &nsys::OVERHEADS),
        graphs: (&process.graphs).into(),
        markers: process.markers,
        ranges,
        omitted_ranges,
        open_ranges: process.ranges.open() + process.ranges.dropped,
    }
}

fn timed(tallies: &BTreeMap<u32, Tally>, kinds: &nsys::Enumeration) -> Vec<Timed> {
    let total_ns = total(tallies.values());
    let one = |(&kind, tally): (&u32, &Tally)| Timed {
        kind: kinds.name(kind),
        times: tally.into(),
        share: share(tally.total_ns, total_ns),
    };
    tallies.iter().map(one).collect()
}

/// Sum of the times, nanoseconds.
fn total<'a>(tallies: impl Iterator<Item = &'a Tally>) -> u64 {
    tallies.fold(0, |sum, tally| sum.saturating_add(tally.total_ns))
}

/// Shortens a list to `--top`; returns the number of omitted rows.
fn limit<T>(rows: &mut Vec<T>, options: &Options) -> u64 {
    let top = options.top.unwrap_or(usize::MAX);
    let omitted = rows.len().saturating_sub(top);
    rows.truncate(top);
    omitted as u64
}

fn device(
    number: u32,
    device: &DeviceActivity,
    observed_ns: u64,
    options: &Options,
) -> DeviceSummary {
    let (sums, spent) = (device.busy.any.sums(), device.busy.spent());
    let recent = spent.since(device.reported);
    let since_last = u64::try_from(options.since_last.as_nanos()).unwrap_or(u64::MAX);
    let described = device.described.as_ref();
    DeviceSummary {
        device: wire::known(number),
        name: described.map(|(name, _)| name.to_string()),
        uuid: described.map(|(_, d)| format!("GPU-{}", gpuprobe_cuda::names::uuid(&d.uuid))),
        busy_ns: sums.busy_ns,
        busy_share: share(sums.busy_ns, observed_ns),
        recent_busy_share: share(recent.any_ns, since_last),
        work: spent,
        shares: BusyShares::of(&spent, observed_ns),
        recent_shares: BusyShares::of(&recent, since_last),
        recent_seconds: options.since_last.as_secs_f64(),
        gaps: sums.gaps,
        kernels: (&device.kernels).into(),
        copies: (&device.copies).into(),
        sets: (&device.sets).into(),
        late_records: device.busy.any.late,
    }
}

/// The kernels listed, and the number omitted by `--top`.
fn kernels(process: &ProcessActivity, options: &Options) -> (Vec<KernelSummary>, u64) {
    let rest = [
        (&process.kernels.unnamed, "(no name)"),
        (&process.kernels.others, "(other kernels)"),
    ];
    let mut sorted: Vec<_> = process.kernels.iter().collect();
    let runs = sorted.iter().map(|kernel| &kernel.runs);
    let total_ns = total(runs.chain(rest.iter().map(|(tally, _)| *tally)));
    sorted.sort_by_key(|kernel| (Reverse(kernel.runs.total_ns), Reverse(kernel.runs.count)));
    let omitted = limit(&mut sorted, options);
    let summary = |name: &str, runs: &Tally| KernelSummary {
        name: name.to_owned(),
        times: runs.into(),
        share: share(runs.total_ns, total_ns),
        ..KernelSummary::default()
    };
    let seconds = options.since_last.as_secs_f64().max(1e-9);
    let named = sorted.into_iter().map(|kernel| KernelSummary {
        mangled: Some(kernel.mangled.to_string()),
        per_second: (kernel.runs.count - kernel.reported) as f64 / seconds,
        grid: kernel.grid,
        block: kernel.block,
        registers_per_thread: kernel.registers_per_thread,
        shared_memory_bytes: kernel.shared_memory,
        ..summary(&kernel.name, &kernel.runs)
    });
    let rest = rest.into_iter().filter(|(tally, _)| tally.count > 0);
    let rest = rest.map(|(tally, name)| summary(name, tally));
    (named.chain(rest).collect(), omitted)
}

fn copies(process: &ProcessActivity, options: &Options) -> Vec<CopySummary> {
    let summary = |moved: &Moved, which: Option<&CopyClass>| {
        let crosses_link = which.is_some_and(|which| which.direction.crosses_link());
        let speed = moved.bytes_per_second();
        let link = options.link.filter(|_| crosses_link);
        CopySummary {
            direction: which.map_or("set", |which| which.direction.name()),
            mode: which.and_then(|which| which.mode).map(Mode::name),
            source: which.map(|which| kinds::of_cupti(which.source.into()).long),
            destination: which.map(|which| kinds::of_cupti(which.destination.into()).long),
            times: (&moved.tally).into(),
            bytes: moved.bytes,
            bytes_per_second: speed,
            peak_bytes_per_second: (moved.tally.total_ns > 0)
                .then_some(moved.peak_bytes_per_second),
            link_utilisation: speed
                .zip(link)
                .map(|(speed, link)| speed / link.bytes_per_second()),
        }
    };
    let sets = (process.sets.tally.count > 0).then(|| summary(&process.sets, None));
    let copies = process.copies.iter();
    let copies = copies.map(|(which, moved)| summary(moved, Some(which)));
    copies.chain(sets).collect()
}

/// The functions listed, and the number omitted by `--top`.
fn calls(process: &ProcessActivity, options: &Options) -> (Vec<CallSummary>, u64) {
    let other = &process.other_calls;
    let mut sorted: Vec<_> = process.functions.iter().collect();
    let all = sorted.iter().map(|(_, function)| &function.calls);
    let total_ns = total(all.chain([other]));
    sorted.sort_by_key(|(key, function)| (Reverse(function.calls.total_ns), **key));
    let omitted = limit(&mut sorted, options);
    let summary = |domain: u32, name: String, calls: &Tally| CallSummary {
        domain: nsys::DOMAINS.name(domain),
        name,
        times: calls.into(),
        failed: 0,
        share: share(calls.total_ns, total_ns),
    };
    let one = |(&(domain, cbid), function): (&(u32, u32), &FunctionCalls)| {
        let name = function.name.as_ref();
        let name = name.map_or_else(|| format!("function {cbid}"), ToString::to_string);
        CallSummary {
            failed: function.failed,
            ..summary(domain, name, &function.calls)
        }
    };
    let name = "(other functions)".to_owned();
    let other = (other.count > 0).then(|| summary(0, name, other));
    (sorted.into_iter().map(one).chain(other).collect(), omitted)
}

/// The ranges listed, and the number omitted by `--top`.
fn ranges(process: &ProcessActivity, options: &Options) -> (Vec<RangeSummary>, u64) {
    let others = &process.ranges.others;
    let ended = process.ranges.iter().filter(|range| range.times.count > 0);
    let mut sorted: Vec<_> = ended.collect();
    let total_ns = total(sorted.iter().map(|range| &range.times).chain([others]));
    sorted.sort_by_key(|range| (Reverse(range.times.total_ns), &range.name, &range.domain));
    let omitted = limit(&mut sorted, options);
    let summary = |domain: Option<String>, name: &str, times: &Tally| RangeSummary {
        domain,
        name: name.to_owned(),
        times: times.into(),
        share: share(times.total_ns, total_ns),
    };
    let named = sorted.into_iter().map(|range| {
        let domain = range.domain.as_ref().map(ToString::to_string);
        summary(domain, &range.name, &range.times)
    });
    let other = (others.count > 0).then(|| summary(None, "(other ranges)", others));
    (named.chain(other).collect(), omitted)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
