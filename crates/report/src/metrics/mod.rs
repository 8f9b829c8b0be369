//! Metrics of a report, for Prometheus: named families of series.
//!
//! Series are counted on: [`Metrics`] keeps what a scrape may still have to see of processes that have ended, and
//! makes counters that never go back. Of processes that live, it keeps all series, and makes those of a process
//! again where it has changed; names of call sites and verdicts come from a [`Report`] of some processes at a time.
//! Labels are names and numbers; addresses, command lines and environments are in none.

mod counters;
mod description;
mod gauges;
mod labels;
mod live;
mod names;
mod rows;
pub mod text;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod values;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use gpuprobe_cuda::Modes;
use gpuprobe_engine::{Ledger, State};
use gpuprobe_model::stack::Symbolize;
use gpuprobe_model::{GpuMemory, GpuUsage};

use crate::Report;
use counters::ProcessCounters;
pub use description::{METRICS, Metric, MetricDescription, MetricType, MetricUnit};
use gauges::GaugeRows;
pub use labels::Labels;
use labels::OTHER;
use live::LiveProcesses;
use rows::{KnownLabels, ProcessKey, ProcessRows};
use values::{Family, MetricValue};

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
    /// Finds the binaries of all live memory.
    pub symbols: &'a dyn Symbolize,
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
    counters: ProcessCounters,
    labels: KnownLabels,
    /// Totals of the host, which never go back.
    totals: HashMap<(Metric, Labels), u64>,
    live: LiveProcesses,
    /// Processes that have series of their own.
    admitted: HashSet<ProcessKey>,
    /// Gauges of the host, and sums of several processes.
    gauges: BTreeMap<Metric, BTreeMap<Labels, MetricValue>>,
    /// Number of series that are summed as `other`.
    merged: u64,
    /// The most processor time so far, seconds.
    cpu_seconds: f64,
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
        self.live.due(ledger, now_ns)
    }

    /// Takes in the newest state.
    pub fn update(&mut self, sources: &MetricSources<'_>, own: &OwnUse) {
        let report = sources.report;
        self.gauges.clear();
        if self.counters.len() > self.limits.series {
            // Nobody scrapes.
            self.counters.mark_scraped();
        }
        self.own(own);
        self.totals(sources);
        let mut live = std::mem::take(&mut self.live);
        live.update(sources, self.limits);
        let traced = live.iter().filter(|(_, one)| one.is_traced).count();
        self.set(
            Metric::TracedProcesses,
            Labels::new(),
            MetricValue::Integer(traced as u64),
        );
        self.hardware(report);
        let mut labels = std::mem::take(&mut self.labels);
        let known = (&self.counters, &mut labels);
        let processes = rows::of_state(sources.state, sources.modes, &live, self.limits, known);
        let admitted = self.admit(&processes);
        let mut counted = Vec::new();
        for process in &processes {
            let is_admitted = admitted.contains(&process.key);
            if !is_admitted {
                let summed = process.summed();
                summed.for_each(|(metric, labels, value)| self.add(metric, labels, value));
            }
            counted.extend(process.counted(is_admitted, &mut labels));
        }
        self.labels = labels;
        self.admitted = admitted;
        self.counters.update(counted);
        self.live = live;
        self.count_series();
    }

    /// Notes that a scrape has got [`Self::text`]: the next has no series of processes that have
    /// ended.
    pub fn mark_scraped(&mut self) {
        self.counters.mark_scraped();
    }

    /// All series in the text format of `OpenMetrics` 1.0.
    ///
    /// # Errors
    /// Returns the encoder's error; none is expected, as it writes to memory.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut counters = BTreeMap::new();
        self.counters.write(&mut counters)?;
        let mut parts: Vec<Vec<&str>> = vec![Vec::new(); Metric::ALL.len()];
        for (metric, samples) in &counters {
            parts[*metric as usize].push(samples);
        }
        for rows in self.own_rows() {
            for (metric, samples) in rows.text()? {
                parts[*metric as usize].push(samples);
            }
        }
        text::document(self.of_host(), &parts)
    }

    /// Gauges of the processes that have series of their own.
    fn own_rows(&self) -> impl Iterator<Item = &GaugeRows> {
        let live = self.live.iter();
        let own = live.filter(|(pid, _)| self.admitted.contains(&(*pid, false)));
        own.map(|(_, process)| &process.gauges)
    }

    /// Families without the series of single processes.
    fn of_host(&self) -> Vec<Family> {
        let family = |metric: Metric| Family {
            metric,
            series: self.gauges.get(&metric).cloned().unwrap_or_default(),
        };
        let mut families: Vec<_> = Metric::ALL.into_iter().map(family).collect();
        for ((metric, labels), value) in &self.totals {
            let family = &mut families[*metric as usize];
            family
                .series
                .insert(labels.clone(), MetricValue::Integer(*value));
        }
        families
    }

    fn own(&mut self, own: &OwnUse) {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let float = MetricValue::Float;
        // A child that has just ended is in no sum for a moment.
        self.cpu_seconds = own.cpu_seconds.max(self.cpu_seconds);
        for (metric, labels, value) in [
            (Metric::CpuSeconds, vec![], float(self.cpu_seconds)),
            (
                Metric::ResidentBytes,
                vec![],
                MetricValue::Integer(own.resident_bytes),
            ),
            (Metric::StartSeconds, vec![], float(own.start_seconds)),
            (
                Metric::BuildInfo,
                vec![("version", version)],
                MetricValue::Integer(1),
            ),
        ] {
            self.set(metric, labels, value);
        }
    }

    /// Counts over all processes since the start.
    fn totals(&mut self, sources: &MetricSources<'_>) {
        let (report, state) = (sources.report, sources.state);
        let mut totals: Vec<(Metric, Labels, u64)> = Vec::new();
        let mut total = |metric, value| totals.push((metric, Labels::new(), value));
        if sources.modes.memleak {
            let counts = state.ledger.counts();
            total(Metric::AllocCalls, counts.alloc_calls);
            total(Metric::FreeCalls, counts.free_calls);
            total(Metric::FailedCalls, counts.failed_calls);
            total(Metric::UnknownFrees, counts.unknown_frees);
            let refused = report.refused.unwrap_or_default();
            total(Metric::OutOfMemory, refused.incidents);
            total(Metric::RefusedCalls, refused.calls);
        }
        if let Some(trace) = &report.cudatrace {
            total(Metric::NodeLaunches, trace.launches);
            total(Metric::NodeGraphLaunches, trace.graph_launches);
            total(Metric::NodeCapturedLaunches, trace.captured_launches);
        }
        if sources.modes.bandwidth_util {
            total(Metric::NodeFailedCopies, state.transfers.failed_calls);
            let mut sums: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
            for (which, meter) in state.transfers.meters() {
                let (direction, mode) = (which.direction.name(), which.mode.name());
                let sum = sums.entry((direction, mode)).or_default();
                *sum = (sum.0.saturating_add(meter.bytes), sum.1 + meter.calls);
            }
            for ((direction, mode), (bytes, calls)) in sums {
                let labels = rows::copy_labels(direction, mode);
                totals.push((Metric::NodeCopyBytes, labels.clone(), bytes));
                totals.push((Metric::NodeCopies, labels, calls));
            }
        }
        let lost = report.lost.by_name().into_iter();
        totals.extend(lost.map(|(what, count)| (Metric::Lost, vec![("what", what)], count)));
        for (metric, labels, value) in totals {
            let known = self.totals.entry((metric, labels)).or_default();
            *known = value.max(*known);
        }
    }

    /// GPUs of the host, as NVML has them.
    fn hardware(&mut self, report: &Report) {
        let gpus = report.memleak.iter().flat_map(|memleak| &memleak.gpus);
        for gpu in gpus {
            let labels = vec![
                ("gpu_uuid", labels::clean(&gpu.uuid)),
                ("gpu", gpu.index.to_string()),
                ("model", labels::clean(&gpu.name)),
            ];
            if let Some(bytes) = gpu.used_bytes {
                self.set(Metric::GpuUsed, labels.clone(), MetricValue::Integer(bytes));
            }
            if let Some(bytes) = gpu.total_bytes {
                self.set(Metric::GpuCapacity, labels, MetricValue::Integer(bytes));
            }
        }
    }

    /// The processes that have series of their own, as many as there is room for: those that had some
    /// first, then by their memory.
    fn admit(&self, processes: &[ProcessRows<'_>]) -> HashSet<ProcessKey> {
        let fixed = self.totals.len() + self.gauges.values().map(BTreeMap::len).sum::<usize>() + 2;
        let all: usize = processes.iter().map(ProcessRows::len).sum();
        let room = self.limits.series.saturating_sub(fixed);
        let mut left = room;
        if all > room {
            // What all others are summed as needs room, too.
            let shapes: HashSet<_> = processes.iter().flat_map(ProcessRows::shapes).collect();
            left = room.saturating_sub(shapes.len());
        }
        let mut order: Vec<_> = processes.iter().collect();
        order.sort_by_key(|process| !self.admitted.contains(&process.key));
        let fits = |process: &&ProcessRows| {
            let is_fitting = process.len() <= left;
            left -= if is_fitting { process.len() } else { 0 };
            is_fitting
        };
        let admitted = order.into_iter().filter(fits);
        admitted.map(|process| process.key).collect()
    }

    fn count_series(&mut self) {
        let gauges: usize = self.gauges.values().map(BTreeMap::len).sum();
        let gauges = gauges + self.own_rows().map(GaugeRows::len).sum::<usize>();
        self.merged += self.own_rows().map(GaugeRows::merged).sum::<u64>();
        let served = gauges + self.totals.len() + self.counters.len() + 2;
        self.set(
            Metric::Series,
            Labels::new(),
            MetricValue::Integer(served as u64),
        );
        let merged = self.merged + self.counters.merged();
        self.merged = 0;
        self.set(
            Metric::MergedSeries,
            Labels::new(),
            MetricValue::Integer(merged),
        );
    }

    fn set(&mut self, metric: Metric, labels: Labels, value: MetricValue) {
        self.gauges.entry(metric).or_default().insert(labels, value);
    }

    /// Adds `value` to a gauge. A verdict is given or not, however often.
    fn add(&mut self, metric: Metric, labels: Labels, value: u64) {
        self.merged += u64::from(labels.iter().any(|(_, value)| value == OTHER));
        let family = self.gauges.entry(metric).or_default();
        let sum = family.entry(labels).or_insert(MetricValue::Integer(0));
        if let MetricValue::Integer(sum) = sum {
            *sum = match metric {
                Metric::Verdict => value.max(*sum),
                _ => sum.saturating_add(value),
            };
        }
    }
}
