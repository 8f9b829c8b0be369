//! Rows of metrics, by process.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::counters::{Counted, CountedItem, ProcessCounters};
use super::labels::{Labels, OTHER, UNKNOWN, clean, clean_name, with};
use super::{Metric, MetricLimits};
use crate::Report;
use crate::bandwidth::DirectionReport;
use crate::cudatrace::KernelReport;
use crate::explain::VerdictReport;
use crate::memleak::{DeviceReport, ProcessReport, SiteReport};
use crate::names;
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::transfers::EARLIER;
use gpuprobe_model::GpuMemory;

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

/// A value that is so now.
#[derive(Clone, Debug)]
pub(super) struct GaugeRow {
    pub(super) metric: Metric,
    pub(super) labels: Labels,
    pub(super) value: u64,
}

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
#[derive(Clone, Debug)]
pub(super) struct ProcessRows {
    pub(super) key: ProcessKey,
    process: Labels,
    is_traced: bool,
    pub(super) gauges: Vec<GaugeRow>,
    counters: Vec<CounterRow>,
}

/// Labels of copies.
pub(super) fn copy_labels(direction: &str, mode: &str) -> Labels {
    vec![
        ("direction", direction.to_owned()),
        ("mode", mode.to_owned()),
    ]
}

/// The rows of all processes of `report`, those with the most memory first. Kernels keep the series that they
/// have unless others are launched more than twice as often.
pub(super) fn of_report(
    report: &Report,
    limits: MetricLimits,
    counters: &ProcessCounters,
) -> Vec<ProcessRows> {
    let mut all = RowsByProcess::of(report, limits);
    all.memory(report);
    all.launches(report, counters);
    all.copies(report, counters);
    all.rows
}

struct RowsByProcess {
    limits: MetricLimits,
    rows: Vec<ProcessRows>,
    places: HashMap<ProcessKey, usize>,
}

impl RowsByProcess {
    fn of(report: &Report, limits: MetricLimits) -> Self {
        let mut all = Self {
            limits,
            rows: Vec::new(),
            places: HashMap::new(),
        };
        for process in report.memleak.iter().flat_map(|memleak| &memleak.processes) {
            let rows = ProcessRows {
                is_traced: process.traced && !process.exited,
                ..ProcessRows::new((process.pid, process.exited), process_labels(process))
            };
            all.places.entry(rows.key).or_insert(all.rows.len());
            all.rows.push(rows);
        }
        all
    }

    /// The rows of a process, which may have no memory.
    fn of_process(
        &mut self,
        key: ProcessKey,
        comm: Option<&str>,
        uid: Option<u32>,
    ) -> &mut ProcessRows {
        let next = self.rows.len();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            let labels = labels_of(key.0, comm, uid, None, None);
            self.rows.push(ProcessRows::new(key, labels));
        }
        &mut self.rows[place]
    }

    fn memory(&mut self, report: &Report) {
        let Some(memleak) = &report.memleak else {
            return;
        };
        let mut verdicts: HashMap<u32, Vec<&VerdictReport>> = HashMap::new();
        for one in report.explain.iter().flat_map(|explain| &explain.verdicts) {
            verdicts.entry(one.pid).or_default().push(one);
        }
        for process in memleak.processes.iter().filter(|process| !process.exited) {
            let most = self.limits.sites;
            let Some(place) = self.places.get(&(process.pid, false)) else {
                continue;
            };
            let rows = &mut self.rows[*place];
            rows.memory(process, &memleak.gpus);
            rows.sites(process, most);
            let verdicts = verdicts.remove(&process.pid).unwrap_or_default();
            rows.gauges
                .extend(verdicts.into_iter().take(most).map(verdict_row));
        }
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

impl ProcessRows {
    fn new(key: ProcessKey, process: Labels) -> Self {
        Self {
            key,
            process,
            is_traced: false,
            gauges: Vec::new(),
            counters: Vec::new(),
        }
    }

    /// Whether the process is alive and has called a traced function.
    pub(super) fn is_traced(&self) -> bool {
        self.is_traced
    }

    /// Maximum number of its series.
    pub(super) fn len(&self) -> usize {
        let own = self.counters.iter();
        let own = own.filter(|row| row.is_own && !row.is_over).count();
        let is_summed = self.counters.iter().any(|row| !row.is_own);
        self.gauges.len() + own + usize::from(is_summed)
    }

    /// The series that its rows are summed as where it has none of its own.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (Metric, Labels)> {
        let gauges = self.gauges.iter().map(|row| (row.metric, &row.labels));
        let counters = self.counters.iter();
        let counters = counters.map(|row| (row.item.metric, &row.item.labels));
        let all = gauges.chain(counters);
        all.map(|(metric, labels)| (metric, self.labels(labels, false)))
    }

    /// The labels of a series of the process, or of the sum of which it is a part.
    pub(super) fn labels(&self, more: &Labels, is_admitted: bool) -> Labels {
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

    fn push(&mut self, metric: Metric, labels: Labels, value: u64) {
        self.gauges.push(GaugeRow {
            metric,
            labels,
            value,
        });
    }

    fn memory(&mut self, process: &ProcessReport, gpus: &[GpuMemory]) {
        let mut on_gpus: HashMap<MemoryKind, (u64, u64)> = HashMap::new();
        for (device, kind) in &process.device_kinds {
            let sum = on_gpus.entry(*kind).or_default();
            *sum = (sum.0 + device.bytes, sum.1 + device.allocations);
            let mut labels = gpu_labels(device);
            labels.push(("kind", kind.name().to_owned()));
            self.push(Metric::GpuMemory, labels.clone(), device.bytes);
            self.push(Metric::GpuAllocations, labels, device.allocations);
        }
        for (kind, total) in &process.kinds.0 {
            let (bytes, allocations) = on_gpus.get(kind).copied().unwrap_or_default();
            let allocations = total.allocations.saturating_sub(allocations);
            if allocations == 0 {
                continue;
            }
            let (bytes, labels) = (
                total.bytes.saturating_sub(bytes),
                vec![("kind", kind.name().to_owned())],
            );
            if kind.belongs() == Belongs::Elsewhere {
                self.push(Metric::ImportedMemory, labels, bytes);
            } else {
                self.push(Metric::HostMemory, labels.clone(), bytes);
                self.push(Metric::HostAllocations, labels, allocations);
            }
        }
        for share in &process.gpus {
            if let (Some(bytes), Some(index)) = (share.used_bytes, share.index) {
                let gpu = gpus.iter().find(|gpu| gpu.index == index);
                let uuid = gpu.map_or(String::new(), |gpu| clean(&gpu.uuid));
                let labels = vec![("gpu_uuid", uuid), ("gpu", index.to_string())];
                self.push(Metric::ProcessUsed, labels, bytes);
            }
        }
        for owner in &process.owners {
            let labels = vec![("owner", clean_name(&owner.owner))];
            self.push(Metric::Owner, labels, owner.bytes);
        }
        for pool in &process.pytorch {
            let gpu = pool.physical_index.unwrap_or(pool.device.into());
            let labels = vec![("gpu", gpu.to_string())];
            let reserved = pool.reserved_bytes;
            self.push(
                Metric::PytorchAllocated,
                labels.clone(),
                pool.allocated_bytes,
            );
            self.push(Metric::PytorchReserved, labels, reserved);
        }
    }

    fn sites(&mut self, process: &ProcessReport, most: usize) {
        let mut list = |metric, sites: &[SiteReport]| {
            let held = sites.iter().filter(|site| site.live.live_bytes > 0);
            let mut held: Vec<_> = held.collect();
            held.sort_by_key(|site| Reverse(site.live.live_bytes));
            let rest = held.split_off(held.len().min(most));
            for site in held {
                let labels = vec![
                    ("site", clean_name(&site.label)),
                    ("owner", clean_name(&site.owner)),
                ];
                self.push(metric, labels, site.live.live_bytes);
            }
            if !rest.is_empty() {
                let bytes = rest.iter().map(|site| site.live.live_bytes).sum();
                let labels = ["site", "owner"].map(|name| (name, OTHER.to_owned()));
                self.push(metric, labels.to_vec(), bytes);
            }
        };
        list(Metric::Site, process.listed());
        let pools = process.pytorch.iter().chain(&process.tensorflow);
        let sites = pools.filter_map(|pool| pool.sites.as_deref());
        sites.for_each(|sites| list(Metric::TensorSite, sites));
    }
}

fn to_other((name, value): &mut (&'static str, String)) {
    if OWN.contains(name) {
        OTHER.clone_into(value);
    }
}

fn process_labels(process: &ProcessReport) -> Labels {
    labels_of(
        process.pid,
        process.comm.as_deref(),
        process.uid,
        process.container.as_deref(),
        process.pod_uid.as_deref(),
    )
}

fn labels_of(
    pid: u32,
    comm: Option<&str>,
    uid: Option<u32>,
    container: Option<&str>,
    pod: Option<&str>,
) -> Labels {
    let text = |text: Option<&str>| text.map(clean).unwrap_or_default();
    vec![
        ("pid", pid.to_string()),
        ("comm", text(comm)),
        ("uid", uid.map(|uid| uid.to_string()).unwrap_or_default()),
        ("container_id", text(container)),
        ("pod_uid", text(pod)),
    ]
}

fn gpu_labels(device: &DeviceReport) -> Labels {
    let index = device.physical_index.or(device.device.map(u32::from));
    let uuid = device.uuid.as_deref().map(clean);
    vec![
        ("gpu_uuid", uuid.unwrap_or_default()),
        (
            "gpu",
            index.map(|index| index.to_string()).unwrap_or_default(),
        ),
    ]
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

fn verdict_row(verdict: &VerdictReport) -> GaugeRow {
    let confidence = match verdict.confidence.split_once(':') {
        Some((word, _)) => word,
        None => &verdict.confidence,
    };
    let site = verdict.label.as_deref().map(clean_name);
    GaugeRow {
        metric: Metric::Verdict,
        labels: vec![
            ("verdict", verdict.verdict.to_owned()),
            ("confidence", confidence.to_owned()),
            ("site", site.unwrap_or_default()),
        ],
        value: 1,
    }
}
