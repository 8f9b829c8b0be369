//! Report of GPU activity, from CUPTI.

mod build;

use serde::Serialize;

use gpuprobe_engine::activity::by_work::Spent;
use gpuprobe_engine::activity::tally::Tally;
use gpuprobe_model::link::PcieLink;

pub(super) use build::build;

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
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name (comm) of the process, if known.
    pub comm: Option<String>,
    /// Name of its user, if known.
    pub user: Option<String>,
    /// Its command line, possibly truncated, if known.
    pub command: Option<String>,
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
        let mut tally = std::mem::take(&mut self.tally);
        tally.merge(&other.tally);
        *self = tally.into();
    }
}

impl From<&Tally> for Times {
    fn from(tally: &Tally) -> Self {
        tally.clone().into()
    }
}

impl From<Tally> for Times {
    fn from(tally: Tally) -> Self {
        Self {
            count: tally.count,
            total_ns: tally.total_ns,
            mean_ns: tally.total_ns as f64 / tally.count.max(1) as f64,
            median_ns: tally.quantile(0.5),
            p99_ns: tally.quantile(0.99),
            min_ns: tally.min_ns,
            max_ns: tally.max_ns,
            tally,
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

/// Busy time of a GPU by kind of work, nanoseconds. The kinds add up to more than the busy time
/// where kernels, copies and sets overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkNs {
    /// Time with at least one kernel.
    pub kernel_ns: u64,
    /// Time with at least one copy.
    pub copy_ns: u64,
    /// Time with at least one memory set.
    pub set_ns: u64,
    /// Time with at least one graph that CUPTI reports as a whole.
    pub graph_ns: u64,
}

impl From<Spent> for WorkNs {
    fn from(spent: Spent) -> Self {
        Self {
            kernel_ns: spent.kernel_ns,
            copy_ns: spent.copy_ns,
            set_ns: spent.set_ns,
            graph_ns: spent.graph_ns,
        }
    }
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
    pub work: WorkNs,
    /// Busy and idle shares of the time for which the process was observed.
    pub shares: BusyShares,
    /// The same shares since the last report.
    pub recent_shares: BusyShares,
    /// Seconds since the last report.
    #[serde(skip)]
    pub recent_seconds: f64,
    /// Idle gaps between the first and the last work.
    pub gaps: GapSummary,
    /// Kernels; their times add up to more than `busy_ns` where they run concurrently.
    pub kernels: Times,
    /// Number and durations of copies.
    pub copies: Times,
    /// Number and durations of memory sets.
    pub sets: Times,
    /// Number of records that arrived too late to be counted in `busy_ns`.
    pub late_records: u64,
}

/// Idle gaps of a GPU.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GapSummary {
    /// Number of idle gaps.
    pub count: u64,
    /// Sum of their lengths, nanoseconds.
    pub total_ns: u64,
    /// Length of the longest gap, nanoseconds.
    pub longest_ns: u64,
    /// `[ns, gaps]`: number of gaps shorter than `ns` and at least half as long.
    pub by_length: Vec<[u64; 2]>,
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
#[derive(Clone, Debug, Serialize)]
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
