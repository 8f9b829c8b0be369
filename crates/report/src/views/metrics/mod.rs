//! Metrics of a report, for Prometheus: named families of series.
//!
//! Numbers are those of the state, names of call sites and verdicts those of the last [`Report`] that had the process:
//! they take far longer, so that a report for a scrape is of some processes only. Labels are names and numbers;
//! addresses, command lines and environments are in none.

mod description;
mod labels;
mod names;
mod rows;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
pub mod text;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use gpuprobe_cuda::Modes;
use gpuprobe_engine::{Ledger, State};
use gpuprobe_model::{GpuMemory, GpuUsage};

use crate::Report;
use description::Metric;
use labels::Labels;
use names::DescribedProcesses;
use rows::{KernelSeries, ProcessSeries};
use text::Families;

/// Limits on the number of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricLimits {
    /// Maximum number of series.
    pub series: usize,
    /// Maximum number of kernels with a series of their own, of each process.
    pub kernels: usize,
    /// The same of call sites.
    pub sites: usize,
}

impl Default for MetricLimits {
    fn default() -> Self {
        Self {
            series: 10_000,
            kernels: 20,
            sites: 20,
        }
    }
}

/// Processor time and memory of gpuprobe itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OwnUse {
    /// Processor time of all of its processes, seconds.
    pub cpu_seconds: f64,
    /// Resident memory of all of its processes, bytes.
    pub resident_bytes: u64,
    /// Start, seconds since 1970.
    pub start_seconds: f64,
}

/// Inputs of [`Metrics::update`], all of one moment.
#[derive(Clone, Copy)]
pub struct MetricSources<'a> {
    /// A report with verdicts, by [`build_of`](crate::build_of): of the processes of [`Metrics::due`] at least.
    pub report: &'a Report,
    /// The state that it was made of.
    pub state: &'a State,
    /// The modes that are traced: metrics of others are left out.
    pub modes: Modes,
    /// Memory use of GPUs and processes from NVML, if it was queried.
    pub usage: Option<&'a GpuUsage>,
    /// Whether all functions in the report have their names; otherwise these are asked for again soon.
    pub has_names: bool,
    /// When the report was made, `CLOCK_MONOTONIC` nanoseconds.
    pub now_ns: u64,
}

impl<'a> MetricSources<'a> {
    fn used(&self, pid: u32) -> &'a [(u32, u64)] {
        let used = self.usage.and_then(|usage| usage.processes.get(&pid));
        used.map_or(&[], Vec::as_slice)
    }

    fn gpus(&self) -> &'a [GpuMemory] {
        self.usage.map_or(&[], |usage| usage.gpus.as_slice())
    }
}

/// Metrics, made from one state after another.
#[derive(Debug, Default)]
pub struct Metrics {
    limits: MetricLimits,
    described: DescribedProcesses,
    kernels: KernelSeries,
    /// Processes that have series of their own.
    admitted: HashSet<u32>,
    /// Counters of the host, and sums of several processes: they never go back.
    totals: HashMap<(Metric, Arc<Labels>), u64>,
    /// The most processor time so far, seconds.
    cpu_seconds: f64,
    families: Arc<Families>,
}

impl Metrics {
    /// Metrics of no report yet.
    pub fn new(limits: MetricLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// The live processes whose names and verdicts the next report is to have, at `now_ns`, `CLOCK_MONOTONIC`
    /// nanoseconds.
    pub fn due(&self, ledger: &Ledger, now_ns: u64) -> HashSet<u32> {
        self.described.due(ledger, now_ns)
    }

    /// Takes in the newest state.
    pub fn update(&mut self, sources: &MetricSources<'_>, own: &OwnUse) {
        self.described.update(sources, self.limits.sites);
        let (described, kernels) = (&self.described, &mut self.kernels);
        let processes = rows::of_processes(sources, described, kernels, self.limits);
        let mut host = ProcessSeries::default();
        add_totals(sources, &mut host);
        add_hardware(sources.report, &mut host);
        host.add(Metric::ResidentBytes, vec![], own.resident_bytes);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        host.add(Metric::BuildInfo, vec![("version", version)], 1);
        self.admit(&processes, host.values.len() + ADDED);
        let mut families = Families::default();
        let (mut served, mut merged) = (0, 0);
        for (pid, process) in processes {
            merged += process.merged;
            if self.admitted.contains(&pid) {
                served += process.values.len();
                families.add(process);
                continue;
            }
            merged += process.values.len() as u64;
            for ((metric, labels), value) in process.summed().zip(process.values.values()) {
                host.add(metric, labels, *value);
            }
        }
        for (key, value) in &mut host.values {
            if key.0.is_counter() {
                let known = self.totals.entry(key.clone()).or_default();
                *known = (*known).max(*value);
                *value = *known;
            }
        }
        served += host.values.len() + ADDED;
        host.add(Metric::Series, vec![], served as u64);
        host.add(Metric::MergedSeries, vec![], merged);
        families.add(host);
        // A child that has just ended is in no sum for a moment.
        self.cpu_seconds = own.cpu_seconds.max(self.cpu_seconds);
        families.add_float(Metric::CpuSeconds, self.cpu_seconds);
        families.add_float(Metric::StartSeconds, own.start_seconds);
        self.families = Arc::new(families);
    }

    /// All series in the text format of `OpenMetrics` 1.0.
    ///
    /// # Errors
    /// Returns the encoder's error; none is expected, as it writes to memory.
    pub fn text(&self) -> Result<String, fmt::Error> {
        self.families.text()
    }

    /// Chooses the processes that have series of their own, as many as there is room for beside `fixed` series: those
    /// that had some first, then by their memory.
    fn admit(&mut self, processes: &BTreeMap<u32, ProcessSeries>, fixed: usize) {
        let all: usize = processes.values().map(|one| one.values.len()).sum();
        let mut left = self.limits.series.saturating_sub(fixed);
        if all > left {
            // What all others are summed as needs room, too.
            let sums: HashSet<_> = processes.values().flat_map(ProcessSeries::summed).collect();
            left = left.saturating_sub(sums.len());
        }
        let mut order: Vec<_> = processes.iter().collect();
        order.sort_by_key(|(pid, process)| {
            let is_new = !self.admitted.contains(*pid);
            (is_new, Reverse(process.size), **pid)
        });
        let fits = |(_, process): &(&u32, &ProcessSeries)| {
            let is_fitting = process.values.len() <= left;
            left -= if is_fitting { process.values.len() } else { 0 };
            is_fitting
        };
        self.admitted = order
            .into_iter()
            .filter(fits)
            .map(|(pid, _)| *pid)
            .collect();
    }
}

/// Series that are added last: numbers of series, and times.
const ADDED: usize = 4;

/// Adds counts over all processes since the start.
fn add_totals(sources: &MetricSources<'_>, host: &mut ProcessSeries) {
    let (report, state) = (sources.report, sources.state);
    let mut add = |metric, count| host.add(metric, vec![], count);
    if sources.modes.memleak {
        let counts = &state.ledger.counts;
        add(Metric::AllocCalls, counts.alloc_calls);
        add(Metric::FreeCalls, counts.free_calls);
        add(Metric::FailedCalls, counts.failed_calls);
        add(Metric::UnknownFrees, counts.unknown_frees);
        let refused = report.refused.unwrap_or_default();
        add(Metric::OutOfMemory, refused.incidents);
        add(Metric::RefusedCalls, refused.calls);
    }
    let live = state.ledger.live_processes();
    let traced = live.filter(|_| report.memleak.is_some()).count();
    add(Metric::TracedProcesses, traced as u64);
    if let Some(trace) = &report.cudatrace {
        add(Metric::NodeLaunches, trace.launches);
        add(Metric::NodeGraphLaunches, trace.graph_launches);
        add(Metric::NodeCapturedLaunches, trace.captured_launches);
    }
    if sources.modes.bandwidth_util {
        add(Metric::NodeFailedCopies, state.transfers.failed_calls);
        for (which, meter) in state.transfers.meters() {
            let labels = labels::of_copies(which);
            host.add(Metric::NodeCopyBytes, labels.clone(), meter.bytes);
            host.add(Metric::NodeCopies, labels, meter.calls);
        }
    }
    for (what, count) in report.lost.by_name() {
        host.add(Metric::Lost, vec![("what", what)], count);
    }
}

/// Adds the GPUs of the host, as NVML has them.
fn add_hardware(report: &Report, host: &mut ProcessSeries) {
    for gpu in report.memleak.iter().flat_map(|memleak| &memleak.gpus) {
        let labels = Arc::new(vec![
            ("gpu_uuid", labels::clean(&gpu.uuid)),
            ("gpu", gpu.index.to_string()),
            ("model", labels::clean(&gpu.name)),
        ]);
        let mut add = |metric, bytes| host.add(metric, Arc::clone(&labels), bytes);
        if let Some(bytes) = gpu.used_bytes {
            add(Metric::GpuUsed, bytes);
        }
        if let Some(bytes) = gpu.total_bytes {
            add(Metric::GpuCapacity, bytes);
        }
    }
}
