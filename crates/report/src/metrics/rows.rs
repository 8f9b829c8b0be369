//! Rows of metrics, by process: gauges of those that live, and counters.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::counters::{Counted, CountedItem, ProcessCounters};
use super::gauges::GaugeRows;
use super::labels::{LabelPool, Labels, OTHER, SharedLabels, UNKNOWN, clean_name, with};
use super::live::{LiveProcess, LiveProcesses, labels_of_process, process_labels};
use super::{Metric, MetricLimits};
use crate::names;
use gpuprobe_cuda::{Modes, Op};
use gpuprobe_engine::State;
use gpuprobe_engine::launches::CountedLaunch;
use gpuprobe_engine::transfers::EARLIER;
use gpuprobe_stacks::symbols::demangle;

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
    process: SharedLabels,
    /// Gauges of a live process; `None` of one that has ended.
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

/// Labels that are in use, and those of kernels by mangled name.
#[derive(Debug, Default)]
pub(super) struct KnownLabels {
    pool: LabelPool,
    kernels: HashMap<Arc<str>, SharedLabels>,
}

/// Maximum number of kernels whose labels are remembered.
const MAX_KERNELS: usize = 1 << 15;

impl KnownLabels {
    fn of_kernel(&mut self, mangled: Option<&Arc<str>>) -> SharedLabels {
        let Some(mangled) = mangled else {
            return self.pool.shared(vec![("kernel", UNKNOWN.to_owned())]);
        };
        if let Some(known) = self.kernels.get(mangled) {
            return known.clone();
        }
        if self.kernels.len() >= MAX_KERNELS {
            self.kernels.clear();
        }
        let name = clean_name(&names::simplify(&demangle(mangled)));
        let labels = self.pool.shared(vec![("kernel", name)]);
        self.kernels.insert(Arc::clone(mangled), labels.clone());
        labels
    }
}

/// The rows of all processes, those with the most memory first. Kernels keep the series that they have unless
/// others are launched more than twice as often.
pub(super) fn of_state<'a>(
    state: &State,
    modes: Modes,
    live: &'a LiveProcesses,
    limits: MetricLimits,
    (counters, labels): (&ProcessCounters, &mut KnownLabels),
) -> Vec<ProcessRows<'a>> {
    let mut all = RowsByProcess {
        limits,
        labels,
        rows: Vec::new(),
        places: HashMap::new(),
    };
    all.begin(state, live);
    if modes.cudatrace {
        all.launches(state, counters);
    }
    if modes.bandwidth_util {
        all.copies(state, counters);
    }
    all.rows
}

struct RowsByProcess<'a, 'b> {
    limits: MetricLimits,
    labels: &'b mut KnownLabels,
    rows: Vec<ProcessRows<'a>>,
    places: HashMap<ProcessKey, usize>,
}

impl<'a> RowsByProcess<'a, '_> {
    /// Adds the live processes, and those whose end no report has shown.
    fn begin(&mut self, state: &State, live: &'a LiveProcesses) {
        let mut processes: Vec<(u32, &LiveProcess)> = live.iter().collect();
        processes.sort_by_key(|(pid, process)| (Reverse(process.size), *pid));
        for (pid, process) in processes {
            let labels = process.gauges.process().clone();
            self.push((pid, false), labels, Some(&process.gauges));
        }
        for process in state.ledger.ended(false) {
            self.push((process.pid, true), labels_of_process(process), None);
        }
    }

    fn push(&mut self, key: ProcessKey, process: Labels, gauges: Option<&'a GaugeRows>) {
        self.places.entry(key).or_insert(self.rows.len());
        self.rows.push(ProcessRows {
            key,
            process: self.labels.pool.shared(process),
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
            self.push(key, labels, None);
        }
        &mut self.rows[self.places[&key]]
    }

    fn launches(&mut self, state: &State, counters: &ProcessCounters) {
        let mut launchers: BTreeMap<u32, HashMap<CountedItem, u64>> = BTreeMap::new();
        for launch in state.launches.counted() {
            let CountedLaunch {
                key,
                counted,
                launcher,
                mangled,
                ..
            } = launch;
            let is_kernel = gpuprobe_cuda::function(key.row)
                .is_some_and(|function| function.op != Op::GraphLaunch);
            if !is_kernel || counted.runs == 0 || launcher.is_none_or(|one| one.end_reported) {
                continue;
            }
            let item = CountedItem {
                metric: Metric::Launches,
                process: key.process,
                handle: mangled.is_none().then_some(key.handle),
                labels: self.labels.of_kernel(mangled),
            };
            let items = launchers.entry(key.process).or_default();
            *items.entry(item).or_default() += counted.runs;
        }
        let most = self.limits.kernels;
        for (process, items) in launchers {
            let Some(launcher) = state.launches.launcher_of(process) else {
                continue;
            };
            let mut items: Vec<_> = items.into_iter().collect();
            // Of equal ones, the same are first each time.
            items.sort_by(|(a, a_launches), (b, b_launches)| {
                let rank = |item, launches: &u64| {
                    Reverse(launches.saturating_mul(1 + u64::from(counters.has_own_series(item))))
                };
                let names = || (a.labels.get(), a.handle).cmp(&(b.labels.get(), b.handle));
                rank(a, a_launches)
                    .cmp(&rank(b, b_launches))
                    .then_with(names)
            });
            let key = (launcher.pid, launcher.exited);
            let rows = self.of_process(key, launcher.comm.as_deref(), launcher.uid);
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

    fn copies(&mut self, state: &State, counters: &ProcessCounters) {
        let transfers = &state.transfers;
        // Those that ended long ago are one row.
        let of_one = transfers.meters().filter(|(which, _)| which.pid != EARLIER);
        for (which, meter) in of_one {
            let labels = copy_labels(which.direction.name(), which.mode.name());
            let labels = self.labels.pool.shared(labels);
            let name = transfers.name(which.pid);
            let comm = name.map(|name| name.comm.as_str());
            let key = (which.pid, transfers.has_ended(which.pid));
            let rows = self.of_process(key, comm, name.and_then(|name| name.uid));
            for (metric, total) in [
                (Metric::CopyBytes, meter.bytes),
                (Metric::Copies, meter.calls),
            ] {
                let item = CountedItem {
                    metric,
                    process: which.pid,
                    handle: None,
                    labels: labels.clone(),
                };
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
        let counters = counters.map(|row| (row.item.metric, row.item.labels.get()));
        let all = gauges.chain(counters);
        all.map(|(metric, labels)| (metric, self.of_others(labels)))
    }

    /// Its gauges as parts of sums of several processes.
    pub(super) fn summed(&self) -> impl Iterator<Item = (Metric, Labels, u64)> {
        let gauges = self.gauges.into_iter().flat_map(GaugeRows::rows);
        gauges.map(|(metric, labels, value)| (metric, self.of_others(labels), value))
    }

    /// The labels of the sum of which a series of the process is a part.
    fn of_others(&self, more: &Labels) -> Labels {
        summed(with(self.process.get(), more))
    }

    /// Its counters, each with the series that counts it.
    pub(super) fn counted(&self, is_admitted: bool, known: &mut KnownLabels) -> Vec<Counted> {
        let process = match is_admitted {
            true => self.process.clone(),
            false => known.pool.shared(summed(self.process.get().clone())),
        };
        let rows = self.counters.iter().map(|row| {
            let is_own = is_admitted && row.is_own;
            let further = match is_own {
                true => row.item.labels.clone(),
                false => known.pool.shared(summed(row.item.labels.get().clone())),
            };
            Counted {
                item: row.item.clone(),
                labels: (process.clone(), further),
                is_shared: !is_own,
                total: row.total,
                has_ended: self.key.1,
            }
        });
        rows.collect()
    }
}

/// The labels of the sum of series with such `labels`.
fn summed(mut labels: Labels) -> Labels {
    labels.iter_mut().for_each(to_other);
    labels
}

fn to_other((name, value): &mut (&'static str, String)) {
    if OWN.contains(name) {
        OTHER.clone_into(value);
    }
}
