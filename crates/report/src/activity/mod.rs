//! What the GPU did and when.

mod build;
pub(super) mod columns;
mod fields;
pub mod lines;
pub(super) mod sums;

use serde::Serialize;

pub(super) use build::build;

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

impl Times {
    /// Adds others.
    pub fn merge(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        let shortest = if self.count == 0 {
            other.min_ns
        } else {
            self.min_ns
        };
        self.min_ns = shortest.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.mean_ns = self.total_ns as f64 / self.count as f64;
    }
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
