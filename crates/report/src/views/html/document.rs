//! The data of the page, as JSON.
//!
//! Times are nanoseconds from the first memory event of a run; they are negative for work before it. `changes` are
//! flat lists of numbers, a few for each bin of time in which something changed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::analysis::diff::Diff;
use crate::analysis::processes::ProcessRow;
use crate::analysis::work::GpuTime;
use crate::explain::Explain;
use crate::memleak::PytorchReport;

/// Version of the layout; the page shows no other.
const VERSION: u32 = 2;

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
    pub(super) traced: String,
    pub(super) lost: LostData,
    /// Edges of the bins: bin `k` begins at edge `k` and ends before edge `k + 1`; the last one ends at it.
    pub(super) edges_ns: Vec<i64>,
    /// Frames, which call paths refer to by number.
    pub(super) frames: Vec<FrameData>,
    pub(super) processes: Vec<ProcessRow>,
    /// Verdicts on the memory.
    pub(super) explain: Option<Explain>,
    /// Memory from CUDA; `None` if it was not recorded.
    pub(super) memory: Option<MemoryData>,
    pub(super) gpus: Vec<GpuData>,
    pub(super) kernels: Vec<KernelData>,
    pub(super) copies: Vec<CopyData>,
    /// Allocators of PyTorch and TensorFlow, by process and device.
    pub(super) tensors: Vec<TensorsData>,
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

/// Memory by call path and bin.
#[derive(Debug, Serialize)]
pub(super) struct HeldData {
    /// Time and bytes of the highest total within each bin.
    pub(super) bins: Vec<(i64, u64)>,
    pub(super) paths: Vec<PathData>,
    /// Labels of call sites by process and number in reports: `PID:NUMBER`.
    pub(super) sites: BTreeMap<String, String>,
}

/// A call path of a process.
#[derive(Debug, Default, Serialize)]
pub(super) struct PathData {
    pub(super) pid: u32,
    /// Its call site; `None` if that is unknown, or it stands for many small ones.
    pub(super) site: Option<u32>,
    pub(super) kind: &'static str,
    /// Whether it is host memory.
    pub(super) host: bool,
    /// The function that was called; of tensors, none.
    pub(super) function: String,
    /// Library or program that the memory belongs to.
    pub(super) owner: Option<String>,
    /// Frames by number, innermost first.
    pub(super) stack: Vec<u32>,
    /// Nine numbers a bin: its number, and its [`HeldSums`](super::held::HeldSums).
    pub(super) changes: Vec<i64>,
}

/// Memory from CUDA.
#[derive(Debug, Serialize)]
pub(super) struct MemoryData {
    #[serde(flatten)]
    pub(super) held: HeldData,
    pub(super) incidents: Vec<IncidentData>,
    /// Memory by nvidia-smi.
    pub(super) overlay: Vec<OverlayData>,
}

/// A request that was refused.
#[derive(Debug, Serialize)]
pub(super) struct IncidentData {
    pub(super) time_ns: i64,
    pub(super) text: String,
}

/// A line of other origin.
#[derive(Debug, Serialize)]
pub(super) struct OverlayData {
    pub(super) label: String,
    /// Seconds from the first memory event, and bytes.
    pub(super) points: Vec<(f64, f64)>,
}

/// A GPU with its busy time.
#[derive(Debug, Serialize)]
pub(super) struct GpuData {
    #[serde(flatten)]
    pub(super) whole: GpuTime,
    pub(super) bins: BusyData,
}

/// Nanoseconds of each bin, by kind of work and with any.
#[derive(Debug, Default, Serialize)]
pub(super) struct BusyData {
    pub(super) kernels: Vec<u64>,
    pub(super) copies: Vec<u64>,
    pub(super) sets: Vec<u64>,
    pub(super) graphs: Vec<u64>,
    pub(super) busy: Vec<u64>,
}

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
}

/// Copies of a direction and mode.
#[derive(Debug, Serialize)]
pub(super) struct CopyData {
    pub(super) pid: u32,
    pub(super) direction: &'static str,
    /// `sync` or `async`, as called.
    pub(super) mode: &'static str,
    /// Four numbers a bin: its number, copies that began in it, their bytes and nanoseconds.
    pub(super) changes: Vec<i64>,
}

/// Tensors of an allocator.
#[derive(Debug, Serialize)]
pub(super) struct TensorsData {
    pub(super) pid: u32,
    /// Device as the process numbers it.
    pub(super) device: u16,
    /// State at the end, without call sites.
    pub(super) report: Option<PytorchReport>,
    #[serde(flatten)]
    pub(super) held: HeldData,
    /// The most bytes reserved within each bin.
    pub(super) reserved: Vec<u64>,
    pub(super) segments: Vec<SegmentData>,
}

#[derive(Debug, Serialize)]
pub(super) struct SegmentData {
    /// Address of its first byte.
    pub(super) address: String,
    pub(super) bytes: u64,
    /// Four numbers a block: offset, bytes, index into the paths or -1 (unknown) or -2 (free), age in nanoseconds or
    /// -1.
    pub(super) blocks: Vec<i64>,
}
