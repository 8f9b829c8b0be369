//! The data of the page, as JSON.
//!
//! Times are nanoseconds from the first memory event of a run; they are negative for work before it. `changes` are
//! flat lists of numbers, a few for each bin of time in which something changed.

use serde::Serialize;
use serde_json::Value;

use crate::analysis::diff::Diff;
use crate::explain::Explain;

/// Version of the layout; the page shows no other.
const VERSION: u32 = 1;

/// One run, or two to compare.
#[derive(Debug, Serialize)]
pub struct Document {
    version: u32,
    gpuprobe: &'static str,
    runs: Vec<RunDocument>,
    diff: Option<Diff>,
}

impl Document {
    pub(super) fn new(runs: Vec<RunDocument>, diff: Option<Diff>) -> Self {
        Self {
            version: VERSION,
            gpuprobe: env!("CARGO_PKG_VERSION"),
            runs,
            diff,
        }
    }
}

/// A run.
#[derive(Debug, Serialize)]
pub struct RunDocument {
    /// Name of the file, without its folder.
    pub file: String,
    /// Command, GPU and date.
    pub title: Option<String>,
    /// Time of day of the first memory event.
    pub start: Option<String>,
    /// What was traced, in sentences.
    pub traced: Vec<String>,
    /// What was lost.
    pub lost: LostDocument,
    /// Edges of the bins: bin `k` begins at edge `k` and ends before edge `k + 1`; the last one ends at it.
    pub edges_ns: Vec<i64>,
    /// Frames, which stacks refer to by number.
    pub frames: Vec<FrameDocument>,
    /// Processes as in a list of processes.
    pub processes: Value,
    /// Verdicts on the memory.
    pub explain: Option<Explain>,
    /// Memory from CUDA; `None` if it was not recorded.
    pub memory: Option<MemoryDocument>,
    /// GPUs with their busy time.
    pub gpus: Vec<Value>,
    /// Kernels by process and name.
    pub kernels: Vec<KernelDocument>,
    /// Copies by process, direction and mode.
    pub copies: Vec<CopyDocument>,
    /// Allocators of PyTorch and TensorFlow, by process and device.
    pub pytorch: Vec<TensorsDocument>,
}

/// Losses of a run.
#[derive(Debug, Serialize)]
pub struct LostDocument {
    /// Nothing was lost.
    pub complete: bool,
    /// The same in words.
    pub sentence: String,
}

/// Function, file, line, binary, whether it is Python, whether it is inlined.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct FrameDocument(
    pub String,
    pub Option<String>,
    pub Option<u32>,
    pub String,
    pub u8,
    pub u8,
);

/// Memory from CUDA.
#[derive(Debug, Serialize)]
pub struct MemoryDocument {
    /// The highest total of GPU memory.
    pub peak: Option<Peak>,
    /// Requests that were refused.
    pub incidents: Vec<Refusal>,
    /// GPU memory over time.
    pub timelines: Timelines,
    /// What nvidia-smi showed.
    pub overlay: Vec<Overlay>,
    /// Time and bytes of the highest total within each bin.
    pub bins: Vec<(i64, u64)>,
    /// Call sites as numbered in reports.
    pub sites: Vec<SiteDocument>,
    /// Call stacks.
    pub stacks: Vec<StackDocument>,
    /// The largest allocations.
    pub allocations: AllocationsDocument,
}

/// Time and bytes of a peak.
#[derive(Debug, Serialize)]
pub struct Peak {
    /// Nanoseconds from the first memory event.
    pub time_ns: i64,
    /// Bytes of GPU memory.
    pub bytes: u64,
}

/// A request that was refused.
#[derive(Debug, Serialize)]
pub struct Refusal {
    /// Nanoseconds from the first memory event.
    pub time_ns: i64,
    /// The process that asked.
    pub pid: u32,
    /// Function, bytes and outcome.
    pub text: String,
}

/// Timelines of the same memory, grouped in different ways.
#[derive(Debug, Serialize)]
pub struct Timelines {
    /// By kind of memory.
    pub kind: Timeline,
    /// By call site: those with most at the peak, and the others.
    pub site: Timeline,
    /// By library or program: those with most at the peak, and the others.
    pub owner: Timeline,
}

/// Stacked areas of bytes; a value holds until the next time.
#[derive(Debug, Default, Serialize)]
pub struct Timeline {
    /// Labels of the areas.
    pub labels: Vec<String>,
    /// Times of the points.
    pub times_ns: Vec<i64>,
    /// Bytes at each time, by area.
    pub values: Vec<Vec<u64>>,
    /// Bytes reserved by an allocator at each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Vec<u64>>,
}

/// A line of other origin.
#[derive(Debug, Serialize)]
pub struct Overlay {
    /// Its name.
    pub label: String,
    /// Seconds from the first memory event, and bytes.
    pub points: Vec<(f64, f64)>,
}

/// A call site.
#[derive(Debug, Serialize)]
pub struct SiteDocument {
    /// Number in reports.
    pub id: u32,
    /// Label in reports.
    pub label: String,
}

/// A call stack of a process.
#[derive(Debug, Serialize)]
pub struct StackDocument {
    /// The process.
    pub pid: u32,
    /// Its call site; `None` if that is unknown, or one of many small ones.
    pub site: Option<u32>,
    /// Kind of memory.
    pub kind: &'static str,
    /// Whether it is host memory.
    pub host: bool,
    /// The function that was called.
    pub function: String,
    /// Library or program that the memory belongs to.
    pub owner: Option<String>,
    /// Frames by number, innermost first.
    pub stack: Vec<u32>,
    /// Nine numbers a bin: its number; bytes and number of allocations made, freed, and held when their process ended;
    /// change of live bytes and allocations from the beginning of the bin to its highest total.
    pub changes: Vec<i64>,
}

/// Single allocations.
#[derive(Debug, Default, Serialize)]
pub struct AllocationsDocument {
    /// Number of all allocations.
    pub all: u64,
    /// The largest of them.
    pub rows: Vec<AllocationDocument>,
}

/// Address, bytes, time, time of its end, 0 if it is live at the end, 1 if it was freed, 2 if its process held it when
/// it ended; number of its stack; thread id.
#[derive(Debug, Serialize)]
pub struct AllocationDocument(
    pub String,
    pub u64,
    pub i64,
    pub Option<i64>,
    pub u8,
    pub usize,
    pub u32,
);

/// Runs of a kernel.
#[derive(Debug, Serialize)]
pub struct KernelDocument {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Number of runs; of launches if runs were not recorded.
    pub launches: u64,
    /// Sum of the durations, nanoseconds.
    pub total_ns: Option<u64>,
    /// Three numbers a bin: its number, runs that began in it, and their durations.
    pub changes: Option<Vec<i64>>,
    /// Bin, bucket and runs; a bucket `b` has durations from 2 to the power of `b` nanoseconds to twice that.
    pub histogram: Option<Vec<i64>>,
}

/// Copies of a direction and mode.
#[derive(Debug, Serialize)]
pub struct CopyDocument {
    /// The process.
    pub pid: u32,
    /// Direction.
    pub direction: &'static str,
    /// `sync` or `async`, as called; `gpu` for times of the GPU.
    pub mode: &'static str,
    /// Number of copies.
    pub copies: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Time spent, nanoseconds.
    pub ns: u64,
    /// Four numbers a bin: its number, copies that began in it, their bytes and nanoseconds.
    pub changes: Vec<i64>,
    /// Bin, bucket of bytes (as for kernels) and copies.
    pub histogram: Vec<i64>,
}

/// Tensors of an allocator.
#[derive(Debug, Serialize)]
pub struct TensorsDocument {
    /// The process.
    pub pid: u32,
    /// Device as the process numbers it.
    pub device: u16,
    /// State at the end, as in reports.
    pub report: Value,
    /// Tensors over time, with the reserved bytes.
    pub timeline: Timeline,
    /// Call sites.
    pub sites: Vec<TensorSiteDocument>,
    /// Bytes that were allocated before gpuprobe attached, at the end of each bin.
    pub before_bytes: Vec<u64>,
    /// Segments and their blocks at the end.
    pub map: MemoryMap,
}

/// A call site of tensors.
#[derive(Debug, Serialize)]
pub struct TensorSiteDocument {
    /// Number in reports.
    pub id: u32,
    /// Label in reports.
    pub label: String,
    /// Frames by number, innermost first.
    pub stack: Vec<u32>,
    /// Five numbers a bin: its number, bytes and number of tensors allocated, and freed.
    pub changes: Vec<i64>,
}

/// Segments of an allocator.
#[derive(Debug, Default, Serialize)]
pub struct MemoryMap {
    /// By address.
    pub segments: Vec<SegmentDocument>,
}

/// A segment.
#[derive(Debug, Serialize)]
pub struct SegmentDocument {
    /// Address of its first byte.
    pub address: String,
    /// Its size.
    pub bytes: u64,
    /// Four numbers a block: offset, bytes, index into the sites or -1 (unknown) or -2 (free), age in nanoseconds or
    /// -1.
    pub blocks: Vec<i64>,
}
