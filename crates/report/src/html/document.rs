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
pub(super) struct PageData {
    version: u32,
    gpuprobe: &'static str,
    runs: Vec<RunData>,
    diff: Option<Diff>,
}

impl PageData {
    pub(super) fn new(runs: Vec<RunData>, diff: Option<Diff>) -> Self {
        Self {
            version: VERSION,
            gpuprobe: env!("CARGO_PKG_VERSION"),
            runs,
            diff,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct RunData {
    /// Name of the file, without its folder.
    pub(super) file: String,
    /// Command, GPU and date.
    pub(super) title: Option<String>,
    /// Time of day of the first memory event.
    pub(super) start: Option<String>,
    pub(super) traced: Vec<String>,
    pub(super) lost: LostData,
    /// Edges of the bins: bin `k` begins at edge `k` and ends before edge `k + 1`; the last one ends at it.
    pub(super) edges_ns: Vec<i64>,
    /// Frames, which stacks refer to by number.
    pub(super) frames: Vec<FrameData>,
    pub(super) processes: Value,
    /// Verdicts on the memory.
    pub(super) explain: Option<Explain>,
    /// Memory from CUDA; `None` if it was not recorded.
    pub(super) memory: Option<MemoryData>,
    /// GPUs with their busy time.
    pub(super) gpus: Vec<Value>,
    /// Kernels by process and name.
    pub(super) kernels: Vec<KernelData>,
    /// Copies by process, direction and mode.
    pub(super) copies: Vec<CopyData>,
    /// Allocators of PyTorch and TensorFlow, by process and device.
    pub(super) pytorch: Vec<TensorsData>,
}

#[derive(Debug, Serialize)]
pub(super) struct LostData {
    /// `None` if that is unknown.
    pub(super) complete: Option<bool>,
    pub(super) sentence: String,
}

/// Function, file, line, binary, whether it is Python, whether it is inlined.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub(super) struct FrameData(
    pub(super) String,
    pub(super) Option<String>,
    pub(super) Option<u32>,
    pub(super) String,
    pub(super) u8,
    pub(super) u8,
);

#[derive(Debug, Serialize)]
pub(super) struct MemoryData {
    /// The highest total of GPU memory.
    pub(super) peak: Option<PeakData>,
    /// Requests that were refused.
    pub(super) incidents: Vec<RefusedData>,
    /// GPU memory over time.
    pub(super) timelines: Timelines,
    pub(super) overlay: Vec<Overlay>,
    /// Time and bytes of the highest total within each bin.
    pub(super) bins: Vec<(i64, u64)>,
    /// Call sites as numbered in reports.
    pub(super) sites: Vec<SiteData>,
    pub(super) stacks: Vec<StackData>,
    pub(super) allocations: AllocationsData,
}

/// Time and bytes of a peak.
#[derive(Debug, Serialize)]
pub(super) struct PeakData {
    /// Nanoseconds from the first memory event.
    pub(super) time_ns: i64,
    /// Bytes of GPU memory.
    pub(super) bytes: u64,
}

/// A request that was refused.
#[derive(Debug, Serialize)]
pub(super) struct RefusedData {
    /// Nanoseconds from the first memory event.
    pub(super) time_ns: i64,
    /// The process that asked.
    pub(super) pid: u32,
    /// Function, bytes and outcome.
    pub(super) text: String,
}

/// Timelines of the same memory, grouped in different ways.
#[derive(Debug, Serialize)]
pub(super) struct Timelines {
    /// By kind of memory.
    pub(super) kind: Timeline,
    /// By call site: those with most at the peak, and the others.
    pub(super) site: Timeline,
    /// By library or program: those with most at the peak, and the others.
    pub(super) owner: Timeline,
}

/// Stacked areas of bytes; a value holds until the next time.
#[derive(Debug, Default, Serialize)]
pub(super) struct Timeline {
    pub(super) labels: Vec<String>,
    /// Times of the points.
    pub(super) times_ns: Vec<i64>,
    /// Bytes at each time, by area.
    pub(super) values: Vec<Vec<u64>>,
    /// Bytes reserved by an allocator at each time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reserved: Option<Vec<u64>>,
}

/// A line of other origin.
#[derive(Debug, Serialize)]
pub(super) struct Overlay {
    pub(super) label: String,
    /// Seconds from the first memory event, and bytes.
    pub(super) points: Vec<(f64, f64)>,
}

#[derive(Debug, Serialize)]
pub(super) struct SiteData {
    pub(super) id: u32,
    pub(super) label: String,
}

/// A call stack of a process.
#[derive(Debug, Serialize)]
pub(super) struct StackData {
    pub(super) pid: u32,
    /// Its call site; `None` if that is unknown, or one of many small ones.
    pub(super) site: Option<u32>,
    pub(super) kind: &'static str,
    /// Whether it is host memory.
    pub(super) host: bool,
    /// The function that was called.
    pub(super) function: String,
    /// Library or program that the memory belongs to.
    pub(super) owner: Option<String>,
    /// Frames by number, innermost first.
    pub(super) stack: Vec<u32>,
    /// Nine numbers a bin: its number; bytes and number of allocations made, freed, and held when their process ended;
    /// change of live bytes and allocations from the beginning of the bin to its highest total.
    pub(super) changes: Vec<i64>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct AllocationsData {
    /// Number of all allocations.
    pub(super) all: u64,
    /// The largest of them.
    pub(super) rows: Vec<AllocationData>,
}

/// Address, bytes, time, time of its end, 0 if it is live at the end, 1 if it was freed, 2 if its process held it when
/// it ended; number of its stack; thread id.
#[derive(Debug, Serialize)]
pub(super) struct AllocationData(
    pub(super) String,
    pub(super) u64,
    pub(super) i64,
    pub(super) Option<i64>,
    pub(super) u8,
    pub(super) usize,
    pub(super) u32,
);

/// Runs of a kernel.
#[derive(Debug, Serialize)]
pub(super) struct KernelData {
    pub(super) pid: u32,
    pub(super) name: String,
    /// The name without boilerplate, as in text.
    pub(super) short: String,
    /// Number of runs; of launches if runs were not recorded.
    pub(super) launches: u64,
    pub(super) total_ns: Option<u64>,
    /// Three numbers a bin: its number, runs that began in it, and their durations.
    pub(super) changes: Option<Vec<i64>>,
    /// Bin, bucket and runs; a bucket `b` has durations from 2 to the power of `b` nanoseconds to twice that.
    pub(super) histogram: Option<Vec<i64>>,
}

/// Copies of a direction and mode.
#[derive(Debug, Serialize)]
pub(super) struct CopyData {
    pub(super) pid: u32,
    pub(super) direction: &'static str,
    /// `sync` or `async`, as called; `gpu` for times of the GPU.
    pub(super) mode: &'static str,
    pub(super) copies: u64,
    pub(super) bytes: u64,
    pub(super) ns: u64,
    /// Four numbers a bin: its number, copies that began in it, their bytes and nanoseconds.
    pub(super) changes: Vec<i64>,
    /// Bin, bucket of bytes (as for kernels) and copies.
    pub(super) histogram: Vec<i64>,
}

/// Tensors of an allocator.
#[derive(Debug, Serialize)]
pub(super) struct TensorsData {
    pub(super) pid: u32,
    /// Device as the process numbers it.
    pub(super) device: u16,
    /// State at the end, as in reports.
    pub(super) report: Value,
    /// Tensors over time, with the reserved bytes.
    pub(super) timeline: Timeline,
    pub(super) sites: Vec<TensorSiteData>,
    /// Bytes that were allocated before gpuprobe attached, at the end of each bin.
    pub(super) before_bytes: Vec<u64>,
    /// Segments and their blocks at the end.
    pub(super) map: MemoryMap,
}

/// A call site of tensors.
#[derive(Debug, Serialize)]
pub(super) struct TensorSiteData {
    pub(super) id: u32,
    pub(super) label: String,
    /// Frames by number, innermost first.
    pub(super) stack: Vec<u32>,
    /// Five numbers a bin: its number, bytes and number of tensors allocated, and freed.
    pub(super) changes: Vec<i64>,
}

/// Segments of an allocator.
#[derive(Debug, Default, Serialize)]
pub(super) struct MemoryMap {
    pub(super) segments: Vec<SegmentData>,
}

#[derive(Debug, Serialize)]
pub(super) struct SegmentData {
    /// Address of its first byte.
    pub(super) address: String,
    pub(super) bytes: u64,
    /// Four numbers a block: offset, bytes, index into the sites or -1 (unknown) or -2 (free), age in nanoseconds or
    /// -1.
    pub(super) blocks: Vec<i64>,
}
