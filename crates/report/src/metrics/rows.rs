//! Rows of metrics, by process: gauges of those that live, and counters.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::counters::{Counted, CountedItem, ProcessCounters};
use super::gauges::GaugeRows;
use super::labels::{Labels, OTHER, UNKNOWN, clean_name, with};
use super::live::{LiveProcess, LiveProcesses, labels_of_process, process_labels};
use super::{Metric, MetricLimits};
use crate::Report;
use crate::bandwidth::DirectionReport;
use crate::cudatrace::KernelReport;
use crate::names;
use gpuprobe_engine::Ledger;
use gpuprobe_engine::transfers::EARLIER;

/// A process by its id, and whether it has ended: an id may be in use again.
pub(super) type ProcessKey = (u32, bool);

/// Labels of which every process has its own values: where processes are summed, they are `other`.
const OWN: &[&str] = &[
    "pid",
    "comm",
    "uid",
    "container_id",
    "pod_uid",
    "owner",
    "site",
    "kernel",
];

/// A sum since the start of the process.
#[derive(Clone, Debug)]
struct CounterRow {
    item: CountedItem,
    total: u64,
    /// Whether it has a series of its own; otherwise it is summed as `other` with others.
    is_own: bool,
    /// Whether it has no series any more, as its process has ended.
    is_over: bool,
}

/// All rows of a process.
#[derive(Debug)]
pub(super) struct ProcessRows<'a> {
    pub(super) key: ProcessKey,
    process: Cow<'a, Labels>,
    /// Those of a live process.
    pub(super) gauges: Option<&'a GaugeRows>,
    counters: Vec<CounterRow>,
}

/// Labels of copies.
pub(super) fn copy_labels(direction: &str, mode: &str) -> Labels {
    vec![
        ("direction", direction.to_owned()),
        ("mode", mode.to_owned()),
    ]
}

/// The rows of all processes, those with the most memory first. Kernels keep the series that they have unless
/// others are launched more than twice as often.
pub(super) fn of_report<'a>(
    report: &Report,
    (live, ledger): (&'a LiveProcesses, &Ledger),
    limits: MetricLimits,
    counters: &ProcessCounters,
) -> Vec<ProcessRows<'a>> {
    let mut all = RowsByProcess::of(live, ledger, limits);
    all.launches(report, counters);
    all.copies(report, counters);
    all.rows
}

struct RowsByProcess<'a> {
    limits: MetricLimits,
    rows: Vec<ProcessRows<'a>>,
    places: HashMap<ProcessKey, usize>,
}

impl<'a> RowsByProcess<'a> {
    fn of(live: &'a LiveProcesses, ledger: &Ledger, limits: MetricLimits) -> Self {
        let mut all = Self {
            limits,
            rows: Vec::new(),
            places: HashMap::new(),
        };
        let mut processes: Vec<(u32, &LiveProcess)> = live.iter().collect();
        processes.sort_by_key(|(pid, process)| (Reverse(process.size), *pid));
        for (pid, process) in processes {
            let gauges = Some(&process.gauges);
            let labels = Cow::Borrowed(process.gauges.process());
            all.push((pid, false), labels, gauges);
        }
        for process in ledger.ended(false) {
            all.push(
                (process.pid, true),
                Cow::Owned(labels_of_process(process)),
                None,
            );
        }
        all
    }

    fn push(&mut self, key: ProcessKey, process: Cow<'a, Labels>, gauges: Option<&'a GaugeRows>) {
        self.places.entry(key).or_insert(self.rows.len());
        self.rows.push(ProcessRows {
            key,
            process,
            gauges,
            counters: Vec::new(),
        });
    }

    /// The rows of a process, which may have no memory.
    fn of_process(
        &mut self,
        key: ProcessKey,
        comm: Option<&str>,
        uid: Option<u32>,
    ) -> &mut ProcessRows<'a> {
        if !self.places.contains_key(&key) {
            let labels = process_labels(key.0, comm, uid, None, None);
            self.push(key, Cow::Owned(labels), None);
        }
        &mut self.rows[self.places[&key]]
    }

    fn launches(&mut self, report: &Report, counters: &ProcessCounters) {
        let mut launchers: BTreeMap<u32, Vec<&KernelReport>> = BTreeMap::new();
        for kernel in report.cudatrace.iter().flat_map(|trace| &trace.kernels) {
            launchers.entry(kernel.process).or_default().push(kernel);
        }
        let most = self.limits.kernels;
        for (launcher, kernels) in launchers {
            let mut items: Vec<_> = kernels
                .iter()
                .filter(|kernel| kernel.launches > 0)
                .map(|kernel| (launch_item(launcher, kernel), kernel.launches))
                .collect();
            items.sort_by_key(|(item, launches)| {
                Reverse(launches.saturating_mul(1 + u64::from(counters.has_own_series(item))))
            });
            let first = kernels[0];
            let key = (first.pid, first.exited);
            let rows = self.of_process(key, first.comm.as_deref(), first.uid);
            let items = items.into_iter().enumerate();
            rows.counters
                .extend(items.map(|(index, (item, total))| CounterRow {
                    is_over: counters.is_over(&item),
                    item,
                    total,
                    is_own: index < most,
                }));
        }
    }

    fn copies(&mut self, report: &Report, counters: &ProcessCounters) {
        let copies = report.bandwidth_util.iter();
        for one in copies.flat_map(|copies| &copies.directions) {
            // Those that ended long ago are one row.
            if one.pid == EARLIER {
                continue;
            }
            let rows = self.of_process((one.pid, one.exited), one.comm.as_deref(), one.uid);
            for (metric, total) in [(Metric::CopyBytes, one.bytes), (Metric::Copies, one.calls)] {
                let item = copy_item(metric, one);
                rows.counters.push(CounterRow {
                    is_over: counters.is_over(&item),
                    item,
                    total,
                    is_own: true,
                });
            }
        }
    }
}

impl ProcessRows<'_> {
    /// Maximum number of its series.
    pub(super) fn len(&self) -> usize {
        let own = self.counters.iter();
        let own = own.filter(|row| row.is_own && !row.is_over).count();
        let is_summed = self.counters.iter().any(|row| !row.is_own);
        self.gauges.map_or(0, GaugeRows::len) + own + usize::from(is_summed)
    }

    /// The series that its rows are summed as where it has none of its own.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (Metric, Labels)> {
        let gauges = self.gauges.into_iter().flat_map(GaugeRows::rows);
        let gauges = gauges.map(|(metric, labels, _)| (metric, labels));
        let counters = self.counters.iter();
        let counters = counters.map(|row| (row.item.metric, &row.item.labels));
        let all = gauges.chain(counters);
        all.map(|(metric, labels)| (metric, self.labels(labels, false)))
    }

    /// Its gauges as parts of sums of several processes.
    pub(super) fn summed(&self) -> impl Iterator<Item = (Metric, Labels, u64)> {
        let gauges = self.gauges.into_iter().flat_map(GaugeRows::rows);
        gauges.map(|(metric, labels, value)| (metric, self.labels(labels, false), value))
    }

    /// The labels of a series of the process, or of the sum of which it is a part.
    fn labels(&self, more: &Labels, is_admitted: bool) -> Labels {
        let mut labels = with(&self.process, more);
        if !is_admitted {
            labels.iter_mut().for_each(to_other);
        }
        labels
    }

    /// Its counters, each with the series that counts it.
    pub(super) fn counted(&self, is_admitted: bool) -> impl Iterator<Item = Counted> {
        self.counters.iter().map(move |row| {
            let mut more = row.item.labels.clone();
            if !row.is_own {
                more.iter_mut().for_each(to_other);
            }
            Counted {
                item: row.item.clone(),
                labels: self.labels(&more, is_admitted),
                is_shared: !(is_admitted && row.is_own),
                total: row.total,
                has_ended: self.key.1,
            }
        })
    }
}

fn to_other((name, value): &mut (&'static str, String)) {
    if OWN.contains(name) {
        OTHER.clone_into(value);
    }
}

fn launch_item(launcher: u32, kernel: &KernelReport) -> CountedItem {
    let name = match kernel.mangled {
        Some(_) => clean_name(&names::simplify(&kernel.name)),
        None => UNKNOWN.to_owned(),
    };
    CountedItem {
        metric: Metric::Launches,
        process: launcher,
        handle: kernel.mangled.is_none().then_some(kernel.handle),
        labels: vec![("kernel", name)],
    }
}

fn copy_item(metric: Metric, one: &DirectionReport) -> CountedItem {
    CountedItem {
        metric,
        process: one.pid,
        handle: None,
        labels: copy_labels(one.direction, one.mode),
    }
}
