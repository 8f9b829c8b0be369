//! Series of processes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::labels::{self, Labels, OTHER, UNKNOWN, clean, clean_name};
use super::names::{DescribedProcess, DescribedProcesses, SiteNames, verdicts};
use super::{Metric, MetricLimits, MetricSources};
use crate::memleak::ProcessReport;
use crate::names;
use gpuprobe_cuda::{Belongs, MemoryKind, Op};
use gpuprobe_engine::{Process, Sites, State};
use gpuprobe_model::GpuMemory;
use gpuprobe_stacks::symbols::demangle;

/// All series of a live process.
#[derive(Debug, Default)]
pub(super) struct ProcessSeries {
    /// Labels of the process, which all series have.
    pub(super) labels: Arc<Labels>,
    /// Values by metric and further labels.
    pub(super) values: BTreeMap<(Metric, Arc<Labels>), u64>,
    /// Live bytes on GPUs and of all kinds, and bytes in use according to NVML.
    pub(super) size: (u64, u64, u64),
    /// Number of kernels and call sites that are summed as `other`.
    pub(super) merged: u64,
}

/// The series of all processes, by process id.
pub(super) fn of_processes(
    sources: &MetricSources<'_>,
    described: &DescribedProcesses,
    kernels: &mut KernelSeries,
    limits: MetricLimits,
) -> BTreeMap<u32, ProcessSeries> {
    let mut all = BTreeMap::new();
    if let Some(memleak) = &sources.report.memleak {
        let untraced = memleak.processes.iter().filter(|process| !process.traced);
        let untraced = untraced.map(|process| {
            let made = ProcessSeries::of_untraced(process, sources, limits);
            (process.pid, made)
        });
        all.extend(untraced);
        let live = sources.state.ledger.live_processes().map(|process| {
            let described = described.get(process);
            let made = ProcessSeries::of_process(process, described, sources, limits);
            (process.pid, made)
        });
        all.extend(live);
    }
    if sources.modes.cudatrace {
        kernels.add_to(&mut all, sources.state, limits.kernels);
    }
    if sources.modes.bandwidth_util {
        add_copies(&mut all, sources.state);
    }
    all
}

impl ProcessSeries {
    fn new(labels: Labels) -> Self {
        Self {
            labels: Arc::new(labels),
            ..Self::default()
        }
    }

    fn of_process(
        process: &Process,
        described: Option<&DescribedProcess>,
        sources: &MetricSources<'_>,
        limits: MetricLimits,
    ) -> Self {
        let mut made = Self::new(labels::of_process(process));
        let sums = process.totals.sums;
        (made.size.0, made.size.1) = (sums.gpu.bytes, sums.all().bytes);
        made.add_used(sources.used(process.pid), sources.gpus());
        made.add_memory(process);
        let none = SiteNames::default();
        let names = described.map_or(&none, |known| &known.sites);
        made.add_sites(Metric::Site, names, &process.sites, limits.sites);
        for pool in process.tensors.iter() {
            let key = (pool.device, pool.is_pytorch());
            let names = described.and_then(|known| known.tensors.get(&key));
            let (names, sites) = (names.unwrap_or(&none), &pool.blocks.sites);
            made.add_sites(Metric::TensorSite, names, sites, limits.sites);
        }
        made.add_pytorch(process);
        for verdict in described.iter().flat_map(|known| &known.verdicts) {
            made.add(Metric::Verdict, verdict.clone(), 1);
        }
        made
    }

    /// A process of which NVML tells, and nothing was traced.
    fn of_untraced(
        process: &ProcessReport,
        sources: &MetricSources<'_>,
        limits: MetricLimits,
    ) -> Self {
        let mut made = Self::new(labels::of_pid(
            process.pid,
            process.comm.as_deref(),
            process.uid,
            process.container.as_deref(),
            process.cgroup.as_deref(),
        ));
        made.add_used(sources.used(process.pid), sources.gpus());
        for verdict in verdicts(sources, process.pid, limits.sites) {
            made.add(Metric::Verdict, verdict, 1);
        }
        made
    }

    /// Adds `value` to the series with these further labels.
    pub(super) fn add(&mut self, metric: Metric, labels: impl Into<Arc<Labels>>, value: u64) {
        let sum = self.values.entry((metric, labels.into())).or_default();
        *sum = metric.together(*sum, value);
    }

    /// Metric and labels of the sums of which its series are parts where it has none of its own.
    pub(super) fn summed(&self) -> impl Iterator<Item = (Metric, Labels)> {
        let series = self.values.keys();
        series.map(|(metric, labels)| (*metric, labels::summed(&self.labels, labels)))
    }

    /// Adds the memory of `process`: by GPU and kind, on the host, imported.
    fn add_memory(&mut self, process: &Process) {
        let mut on_gpus: HashMap<MemoryKind, (u64, u64)> = HashMap::new();
        for (index, kind, total) in process.device_kinds() {
            let sum = on_gpus.entry(kind).or_default();
            *sum = (sum.0 + total.bytes, sum.1 + total.allocations);
            let device = index.map(|index| process.identity.device(index));
            let device = device.unwrap_or_default();
            let gpu = device.physical_index.or(index.map(u32::from));
            let labels = Arc::new(vec![
                (
                    "gpu_uuid",
                    device.uuid.as_deref().map(clean).unwrap_or_default(),
                ),
                ("gpu", gpu.map(|gpu| gpu.to_string()).unwrap_or_default()),
                ("kind", kind.name().to_owned()),
            ]);
            self.add(Metric::GpuMemory, Arc::clone(&labels), total.bytes);
            self.add(Metric::GpuAllocations, labels, total.allocations);
        }
        for (kind, total) in process.totals.kinds() {
            let (bytes, allocations) = on_gpus.get(&kind).copied().unwrap_or_default();
            let allocations = total.allocations.saturating_sub(allocations);
            if allocations == 0 {
                continue;
            }
            let bytes = total.bytes.saturating_sub(bytes);
            let labels = Arc::new(vec![("kind", kind.name().to_owned())]);
            if kind.belongs() == Belongs::Elsewhere {
                self.add(Metric::ImportedMemory, labels, bytes);
            } else {
                self.add(Metric::HostMemory, Arc::clone(&labels), bytes);
                self.add(Metric::HostAllocations, labels, allocations);
            }
        }
    }

    /// Adds the live GPU memory of `sites` as series of `metric`: those of the `most` largest names, and the others
    /// together. Owners are those of all memory, in which tensors are.
    fn add_sites(&mut self, metric: Metric, names: &SiteNames, sites: &Sites, most: usize) {
        let (held, unnamed) = names.held(sites);
        let other = Arc::new(
            ["site", "owner"]
                .map(|name| (name, OTHER.to_owned()))
                .to_vec(),
        );
        let has_owners = metric == Metric::Site;
        for (index, (bytes, name)) in held.into_iter().enumerate() {
            let is_own = index < most;
            self.merged += u64::from(!is_own);
            let labels = if is_own { &name.labels } else { &other };
            self.add(metric, Arc::clone(labels), bytes);
            if has_owners {
                self.add(Metric::Owner, vec![("owner", name.owner.clone())], bytes);
            }
        }
        if unnamed > 0 {
            self.add(metric, other, unnamed);
            if has_owners {
                self.add(Metric::Owner, vec![("owner", OTHER.to_owned())], unnamed);
            }
        }
    }

    /// Adds the memory that PyTorch's allocators of `process` have.
    fn add_pytorch(&mut self, process: &Process) {
        for pool in process.tensors.iter().filter(|pool| pool.is_pytorch()) {
            let physical = process.identity.device(pool.device).physical_index;
            let gpu = physical.unwrap_or(pool.device.into());
            let labels = Arc::new(vec![("gpu", gpu.to_string())]);
            self.add(
                Metric::PytorchAllocated,
                Arc::clone(&labels),
                pool.allocated_bytes,
            );
            self.add(Metric::PytorchReserved, labels, pool.reserved_bytes);
        }
    }

    /// Adds what NVML says of the process: bytes by GPU.
    fn add_used(&mut self, used: &[(u32, u64)], gpus: &[GpuMemory]) {
        for &(index, bytes) in used {
            let gpu = gpus.iter().find(|gpu| gpu.index == index);
            let uuid = gpu.map_or(String::new(), |gpu| clean(&gpu.uuid));
            let labels = vec![("gpu_uuid", uuid), ("gpu", index.to_string())];
            self.add(Metric::ProcessUsed, labels, bytes);
            self.size.2 = self.size.2.saturating_add(bytes);
        }
    }
}

/// Maximum number of kernels whose labels are remembered.
const MAX_KERNELS: usize = 1 << 15;

/// The kernels that have series of their own: of each process those that it launched most when they were first seen,
/// for as long as it lives.
#[derive(Debug, Default)]
pub(super) struct KernelSeries {
    /// By the kernel side's number of the process.
    own: HashMap<u32, HashSet<Arc<Labels>>>,
    /// Labels by mangled name.
    known: HashMap<Arc<str>, Arc<Labels>>,
}

impl KernelSeries {
    fn labels(&mut self, mangled: Option<&Arc<str>>) -> Arc<Labels> {
        let Some(mangled) = mangled else {
            return Arc::new(vec![("kernel", UNKNOWN.to_owned())]);
        };
        if let Some(known) = self.known.get(mangled) {
            return Arc::clone(known);
        }
        if self.known.len() >= MAX_KERNELS {
            self.known.clear();
        }
        let name = clean_name(&names::simplify(&demangle(mangled)));
        let labels = Arc::new(vec![("kernel", name)]);
        self.known.insert(Arc::clone(mangled), Arc::clone(&labels));
        labels
    }

    /// Adds the launches of live processes.
    fn add_to(&mut self, all: &mut BTreeMap<u32, ProcessSeries>, state: &State, most: usize) {
        let mut launched: HashMap<u32, HashMap<Arc<Labels>, u64>> = HashMap::new();
        for launch in state.launches.counted() {
            let function = gpuprobe_cuda::function(launch.key.row);
            let is_kernel = function.is_some_and(|function| function.op != Op::GraphLaunch);
            let is_live = launch.launcher.is_some_and(|launcher| !launcher.exited);
            if is_kernel && is_live && launch.counted.runs > 0 {
                let kernels = launched.entry(launch.key.process).or_default();
                *kernels.entry(self.labels(launch.mangled)).or_default() += launch.counted.runs;
            }
        }
        self.own.retain(|process, _| launched.contains_key(process));
        let other = Arc::new(vec![("kernel", OTHER.to_owned())]);
        for (process, kernels) in launched {
            let Some(launcher) = state.launches.launcher_of(process) else {
                continue;
            };
            let own = self.own.entry(process).or_default();
            let new = kernels.iter().filter(|(labels, _)| !own.contains(*labels));
            let mut new: Vec<_> = new.map(|(labels, runs)| (Reverse(*runs), labels)).collect();
            new.sort_unstable();
            new.truncate(most.saturating_sub(own.len()));
            own.extend(new.into_iter().map(|(_, labels)| Arc::clone(labels)));
            let (comm, uid) = (launcher.comm.as_deref(), launcher.uid);
            let series = series_of(all, launcher.pid, comm, uid);
            for (labels, runs) in kernels {
                let is_own = own.contains(&labels);
                series.merged += u64::from(!is_own);
                let labels = if is_own { labels } else { Arc::clone(&other) };
                series.add(Metric::Launches, labels, runs);
            }
        }
    }
}

/// Adds the copies of live processes.
fn add_copies(all: &mut BTreeMap<u32, ProcessSeries>, state: &State) {
    let transfers = &state.transfers;
    let live = transfers.meters();
    for (which, meter) in live.filter(|(which, _)| !transfers.has_ended(which.pid)) {
        let name = transfers.name(which.pid);
        let comm = name.map(|name| name.comm.as_str());
        let series = series_of(all, which.pid, comm, name.and_then(|name| name.uid));
        let labels = Arc::new(labels::of_copies(which));
        series.add(Metric::CopyBytes, Arc::clone(&labels), meter.bytes);
        series.add(Metric::Copies, labels, meter.calls);
    }
}

/// The series of a process, which may have no memory.
fn series_of<'a>(
    all: &'a mut BTreeMap<u32, ProcessSeries>,
    pid: u32,
    comm: Option<&str>,
    uid: Option<u32>,
) -> &'a mut ProcessSeries {
    let new = || ProcessSeries::new(labels::of_pid(pid, comm, uid, None, None));
    all.entry(pid).or_insert_with(new)
}
