//! Fields that only reports of a file have.

use chrono::{DateTime, FixedOffset};
use serde::Serialize;

use super::Filter;
use super::file::Analysis;
use super::played::Played;
use super::processes::ProcessRow;
use super::work::GpuTime;
use crate::clock_micros;
use crate::memleak::Memleak;
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

impl About {
    /// Of a report about the selected time.
    pub(super) fn new(question: Analysis, filter: &Filter) -> Self {
        let seconds = |ns: i64| ns as f64 / 1e9;
        Self {
            analysis: format!("{question:?}").to_lowercase(),
            from: filter.begin_ns().map(seconds),
            to: filter.end_ns().map(seconds),
            ..Self::default()
        }
    }

    /// Adds times and totals of the memory that was played.
    pub(super) fn set_memory(&mut self, question: Analysis, played: &Played) {
        let first_ns = played.first_ns().unwrap_or(0);
        self.first_ns = played.event_ns(first_ns);
        let since_first = |ns: i64| ns.saturating_sub(first_ns);
        self.last_ns = played.last_ns().map(since_first);
        (self.from, self.to) = played.range();
        self.findings = Some(played.findings);
        let live = match question {
            Analysis::Watermark => {
                let peak_ns = played.peak_ns();
                self.time_ns = peak_ns.map(since_first);
                self.time = peak_ns.and_then(|peak| played.wall(peak));
                played.at_peak
            }
            _ => played.never_freed(),
        };
        self.totals = Some(live.gpu);
        self.host = Some(live.host);
    }
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
