//! What the GPU did and when.

mod build;
pub(super) mod columns;
mod fields;
pub mod lines;
pub(super) mod sums;

use serde::Serialize;

use gpuprobe_engine::activity::by_work::Spent;
use gpuprobe_engine::activity::tally::Tally;
use gpuprobe_model::link::Link;

pub(super) use build::build;

/// What CUPTI has told, over all processes since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ActivitySummary {
    /// Records.
    pub records: u64,
    /// Processes that ended long ago and are not listed any more.
    pub forgotten_processes: u64,
    /// The link of the host's GPUs, if all have the same and it is known.
    pub link: Option<Link>,
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
    /// Name of its user, if known.
    pub user: Option<String>,
    /// Its command line, of which the end may be missing, if known.
    pub command: Option<String>,
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
    /// Ranges of NVTX, most time first; `--top` limits their number.
    pub ranges: Vec<RangeSummary>,
    /// Names of ranges left out by `--top`.
    pub omitted_ranges: u64,
    /// Ranges that have not ended.
    pub open_ranges: u64,
}

/// How often, and how long.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// All together, nanoseconds.
    pub total_ns: u64,
    /// On average, nanoseconds; 0 if there are none.
    pub mean_ns: f64,
    /// Half of them are not longer, nanoseconds; within 1 %.
    pub median_ns: u64,
    /// 99 of a hundred are not longer, nanoseconds; within 1 %.
    pub p99_ns: u64,
    /// The shortest, nanoseconds.
    pub min_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
    /// What they are told from.
    #[serde(skip)]
    tally: Tally,
}

impl Times {
    /// Adds others.
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

/// The part of `all_ns` that `ns` is, 0 to 1.
pub(crate) fn share(ns: u64, all_ns: u64) -> f64 {
    (ns as f64 / all_ns.max(1) as f64).min(1.0)
}

/// Times of something that has a name.
#[derive(Clone, Debug, Serialize)]
pub struct Timed {
    /// What.
    pub kind: &'static str,
    /// How often, and how long.
    #[serde(flatten)]
    pub times: Times,
    /// Its share of the time of all in the list.
    pub share: f64,
}

/// Time of a GPU by what it did, nanoseconds. It is more than the time in which it did anything
/// where kernels, copies and sets overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkNs {
    /// Time with at least one kernel.
    pub kernel_ns: u64,
    /// Time with at least one copy.
    pub copy_ns: u64,
    /// Time with at least one memory set.
    pub set_ns: u64,
    /// Time with at least one graph that CUPTI tells of as a whole.
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

/// The parts of a time in which a GPU did something, and nothing, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// With at least one kernel.
    pub kernels: f64,
    /// With at least one copy.
    pub copies: f64,
    /// With at least one memory set.
    pub sets: f64,
    /// With at least one graph that CUPTI tells of as a whole.
    pub graphs: f64,
    /// With none of these.
    pub idle: f64,
}

impl Shares {
    /// The parts of `of_ns`.
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
    /// That time by what ran.
    #[serde(flatten)]
    pub work: WorkNs,
    /// The same, of the time for which the process was observed.
    pub shares: Shares,
    /// The same since the last report.
    pub recent_shares: Shares,
    /// Time since the last report.
    #[serde(skip)]
    pub recent_seconds: f64,
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
    /// As in the reports of copies; none for sets, and in files that do not tell.
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
    /// `bytes_per_second` over what the link between host and GPU can carry one way; none if they do
    /// not cross it or it is not known.
    pub link_utilisation: Option<f64>,
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
    /// Its share of the time of all calls of the process.
    pub share: f64,
}

/// Ranges that a program marks through NVTX, of one name.
#[derive(Clone, Debug, Serialize)]
pub struct RangeSummary {
    /// Their domain; none for the default one.
    pub domain: Option<String>,
    /// What they are called.
    pub name: String,
    /// Those that have ended, each by itself, also within another of its name.
    #[serde(flatten)]
    pub times: Times,
    /// Their share of the time of all ranges of the process.
    pub share: f64,
}
