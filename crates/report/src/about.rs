//! Fields that only reports of a file have.

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use crate::activity::BusyShares;
use crate::clock_micros;
use crate::memleak::Memleak;
use gpuprobe_cuda::Modes;
use gpuprobe_engine::activity::by_work::Spent;
use gpuprobe_model::Total;
use gpuprobe_recording::Session;

/// Fields that only reports of a file have.
#[derive(Clone, Debug, Default, Serialize)]
pub struct About {
    /// The analysis: `watermark`, `leakage`, `kernels`, `copies`, `calls`, `waits`, `nvtx`,
    /// `processes` or `summary`.
    pub analysis: String,
    /// Start of the selected time, seconds from the first memory event; of a report without memory, `None` unless it
    /// was asked for.
    pub from: Option<f64>,
    /// End of the selected time, seconds from the first memory event.
    pub to: Option<f64>,
    /// The time that is reported, nanoseconds from the first memory event; `None` for memory that
    /// was never freed.
    pub time_ns: Option<i64>,
    /// Live GPU memory, by how much is known of the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<AnalysisTotals>,
    /// Live host memory, by how much is known of the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<AnalysisTotals>,
    /// Inconsistencies found in the memory events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub findings: Option<Anomalies>,
    /// Utilisation of the GPUs, by all processes together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuTime>,
    /// Time from the first record of any kind to the end of the last, nanoseconds; in a summary,
    /// and in a list of processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_ns: Option<u64>,
    /// Figures by process; in a summary, and in a list of processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<ProcessRow>>,
    /// Memory at the peak, in a summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watermark: Option<Box<AtPeak>>,
    /// Metadata of the file, in a summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
    /// Time of the first memory event, on the clock of events.
    #[serde(skip)]
    pub first_ns: u64,
    /// Time of the last memory event, nanoseconds from the first.
    #[serde(skip)]
    pub last_ns: Option<i64>,
    /// The time that is reported, as time of day.
    #[serde(skip)]
    pub time: Option<DateTime<FixedOffset>>,
    /// Whether an end of the selected time was asked for.
    #[serde(skip)]
    pub ends_early: bool,
    /// What a recording has; `None` of an export, which does not say.
    #[serde(skip)]
    pub recorded: Option<Modes>,
}

/// Memory that was live at the peak.
#[derive(Clone, Debug, Serialize)]
pub struct AtPeak {
    /// Time of the peak, nanoseconds from the first memory event.
    pub time_ns: Option<i64>,
    /// Time of the peak as time of day.
    #[serde(serialize_with = "clock_micros")]
    pub time: Option<DateTime<FixedOffset>>,
    /// GPU memory, by how much is known of the calls.
    pub totals: AnalysisTotals,
    /// Host memory, by how much is known of the calls.
    pub host: AnalysisTotals,
    /// Live memory, as in a live report at that time.
    #[serde(flatten)]
    pub memleak: Memleak,
}

/// Amounts by how much is known of the allocating calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AnalysisTotals {
    /// Sum of the three amounts below.
    pub total: Total,
    /// Allocated by calls with a call stack.
    pub valid: Total,
    /// Allocated by calls without a call stack.
    pub invalid: Total,
    /// Allocated by the driver itself.
    pub driver: Total,
}

/// Number of inconsistencies in the memory events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Anomalies {
    /// Number of memory events read.
    pub events: u64,
    /// Number of these that are about host memory.
    pub host_events: u64,
    /// Allocations at an address with a live allocation; the free of the older one is not in the
    /// file.
    pub double_allocations: u64,
    /// Frees of memory with no known allocation.
    pub unmatched_frees: u64,
    /// Frees with another size than was allocated.
    pub size_mismatches: u64,
    /// Malformed rows, which were skipped.
    pub malformed: u64,
}

/// Utilisation of a GPU by all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuTime {
    /// Device index in the file.
    pub device: u32,
    /// Time with a kernel, a copy, a memory set or a graph running, nanoseconds.
    pub busy_ns: u64,
    /// Time from the first of these to the end of the last, nanoseconds.
    pub span_ns: u64,
    /// `busy_ns` as a share of `span_ns`, 0 to 1.
    pub share: f64,
    /// Number of idle gaps in between.
    pub gaps: u64,
    /// Length of the longest gap, nanoseconds.
    pub longest_gap_ns: u64,
    /// Name of the GPU, if the file has it.
    pub name: Option<String>,
    /// Busy time by kind of work.
    #[serde(flatten)]
    pub work: Spent,
    /// Time from the first record of any kind in the file to the end of the last, nanoseconds.
    pub observed_ns: u64,
    /// Busy and idle time as shares of `observed_ns`.
    pub shares: BusyShares,
}

/// A process of a file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessRow {
    /// Process id (tgid) in the file.
    pub pid: u32,
    /// Name (comm) of the process, if the file has it.
    pub comm: Option<String>,
    /// User id, if the file has it.
    pub uid: Option<u32>,
    /// Time from its first record to the end of its last, nanoseconds.
    pub run_ns: u64,
    /// Peak of its GPU memory, bytes; `None`, as the figures below, if that was not recorded.
    pub peak_bytes: Option<u64>,
    /// Bytes of GPU memory never freed.
    pub never_freed_bytes: Option<u64>,
    /// Number of allocations never freed.
    pub never_freed_allocations: Option<u64>,
    /// Kernel runs, or kernel launches if the file has no GPU activity.
    pub launches: Option<u64>,
    /// Number of graph launches.
    pub graph_launches: Option<u64>,
    /// Sum of the kernel durations on GPUs, nanoseconds; `None` if they were not measured.
    pub kernel_ns: Option<u64>,
    /// Copies that ran, or copy calls if the file has no GPU activity.
    pub copies: Option<u64>,
    /// Sum of the bytes copied.
    pub copied_bytes: Option<u64>,
}
