//! The metrics of reports: series by process and of the host, for scrapers.
//!
//! A report for a scrape has the sums of every process, and the call sites and verdicts of a few; the others keep
//! those of their last report. Labels are names and numbers: no address, command line or environment is in one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use gpuprobe_cuda::Belongs;
use gpuprobe_engine::State;
use gpuprobe_model::container::pod_uid_in;
use gpuprobe_model::text::printable;
use indexmap::IndexMap;

pub use crate::options::{MetricLimits, ScrapeScope};

use crate::memleak::{Holder, Memleak, ProcessReport, SiteReport};
use crate::public::without_addresses;
use crate::words::Who;
use crate::{Report, names};

/// Metrics: the name, of counters with `_total` after the unit, and the meaning.
pub const METRICS: &str = "\
gpuprobe_gpu_memory_bytes GPU memory that live processes have allocated and not freed, by kind.
gpuprobe_gpu_memory_allocations Number of live allocations of GPU memory, by kind.
gpuprobe_host_memory_bytes Host memory that CUDA has allocated or pinned for live processes, by kind.
gpuprobe_host_memory_allocations Number of live allocations of that host memory, by kind.
gpuprobe_imported_memory_bytes Memory of another process or API that live processes have open; it is counted there.
gpuprobe_checkpointed_memory_bytes GPU memory that a checkpoint moved to the host: until the restore, it is held nowhere.
gpuprobe_process_gpu_used_bytes GPU memory of a process according to NVML, with contexts and whatever is not traced.
gpuprobe_memory_owner_bytes Live GPU memory by the library or program that allocated it.
gpuprobe_memory_site_bytes Live GPU memory by call site: the largest of each process, and the others together.
gpuprobe_tensor_site_bytes Live tensors by call site, within memory of other metrics: the largest, and the others.
gpuprobe_pytorch_allocated_bytes Memory that PyTorch's allocator has handed out: `torch.cuda.memory_allocated()`.
gpuprobe_pytorch_reserved_bytes Memory that PyTorch's allocator has from CUDA: `torch.cuda.memory_reserved()`.
gpuprobe_verdict 1 for each verdict of `gpuprobe explain` on a process or one of its call sites.
gpuprobe_gpu_used_bytes Memory of a GPU in use according to NVML, by all processes.
gpuprobe_gpu_capacity_bytes Memory of a GPU according to NVML.
gpuprobe_alloc_calls_total Successful allocating calls of all processes.
gpuprobe_free_calls_total Successful frees of all processes.
gpuprobe_failed_calls_total Memory calls of all processes that returned an error.
gpuprobe_unknown_frees_total Frees of memory that was allocated before tracing began.
gpuprobe_oom_total Out-of-memory incidents: a refused request, with its retries.
gpuprobe_oom_calls_total Calls that failed with out-of-memory.
gpuprobe_kernel_launches_total Kernel launches of a process: the kernels that it launches most, and the others together.
gpuprobe_node_kernel_launches_total Kernel launches of all processes, those that have ended included.
gpuprobe_node_graph_launches_total Launches of CUDA graphs of all processes.
gpuprobe_node_captured_launches_total Kernel launches that were captured into a graph instead of run.
gpuprobe_copy_bytes_total Bytes copied by a process, by direction and mode.
gpuprobe_copies_total Copies and memory sets of a process, by direction and mode.
gpuprobe_copy_site_bytes_total Bytes copied by call site, direction and host memory: the sites that take longest.
gpuprobe_copy_site_calls_total Copies by call site: the sites of each process that take longest.
gpuprobe_copy_site_waits_total Copies by call site that waited until the transfer, and the work before it, had ended.
gpuprobe_node_copy_bytes_total Bytes copied by all processes, those that have ended included, by direction and mode.
gpuprobe_node_copies_total Copies and memory sets of all processes, by direction and mode.
gpuprobe_node_failed_copies_total Copies and memory sets that returned an error.
gpuprobe_lost_events_total Events that were lost, by what they were about: with any, other metrics are incomplete.
gpuprobe_tracing_cost_ratio About what gpuprobe costs a process, of the time of one of its threads.
gpuprobe_traced_processes Live processes that have called a traced function.
gpuprobe_series Number of series served.
gpuprobe_merged_series Number of kernels, call sites, and series of processes that were summed as `other`.
gpuprobe_build_info 1, with the version of gpuprobe.
process_cpu_seconds_total Processor time of gpuprobe, all of its processes.
process_resident_memory_bytes Resident memory of gpuprobe, all of its processes.
process_start_time_seconds Start of gpuprobe, seconds since 1970.";

/// Processor time and memory of gpuprobe itself, all of its processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnUse {
    /// Processor time.
    pub cpu: Duration,
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Start, since 1970.
    pub start: Duration,
}

/// Names and values of the labels of a series, in order.
pub type Labels = Vec<(&'static str, String)>;
/// Name and labels of a series.
type Key = (&'static str, Labels);
/// Series of each metric: labels of the process, further labels, and the value; of seconds and ratios, thousandths.
pub type Families = BTreeMap<&'static str, Vec<(Arc<Labels>, Labels, u64)>>;

/// Call sites that are listed for one scrape, each of which takes some 20 us; of one process at least.
const SITES: usize = 500;

/// Call sites, owners, tensors and verdicts of a live process, as its last report had them.
#[derive(Debug)]
struct ProcessDetails {
    first_seen_ns: Option<u64>,
    /// Number of the report that listed them.
    report: u64,
    series: SeriesSet,
}

/// Metrics, made from one report after another.
#[derive(Debug, Default)]
pub struct Metrics {
    scope: ScrapeScope,
    details: HashMap<u32, ProcessDetails>,
    /// Number of reports so far.
    reports: u64,
    /// Processes that have series of their own.
    admitted: HashSet<u32>,
    /// Counters of the host, and sums of several processes: they never go back.
    totals: HashMap<Key, u64>,
    /// All series.
    pub families: Arc<Families>,
}

/// The series of processes, those with most memory first.
type ProcessesSeries = IndexMap<u32, SeriesSet>;

impl Metrics {
    /// Metrics of no report yet.
    pub fn new(limits: MetricLimits) -> Self {
        let mut metrics = Self::default();
        metrics.scope.limits = limits;
        metrics
    }

    /// The scope of the next report: the processes whose call sites were never listed, then those that have waited
    /// longest.
    pub fn scope(&mut self, state: &State) -> &ScrapeScope {
        let ledger = &state.ledger;
        let mut copying: HashMap<u32, usize> = HashMap::new();
        for (site, _) in state.transfers.sites() {
            *copying.entry(site.pid).or_default() += 1;
        }
        self.details.retain(|pid, details| {
            let process = ledger.process_of(*pid);
            process.is_some_and(|one| one.first_seen_ns == details.first_seen_ns)
        });
        let mut due: Vec<_> = ledger.live_processes().collect();
        due.sort_by_key(|process| {
            let details = self.details.get(&process.pid);
            (details.map_or(0, |details| details.report), process.pid)
        });
        let mut sites = 0;
        due.retain(|process| {
            let is_first = sites == 0;
            let holders = Holder::all(process);
            let held = holders.map(|one| one.sites().sites.iter().len());
            sites += held.sum::<usize>() + copying.get(&process.pid).unwrap_or(&0);
            is_first || sites <= SITES
        });
        let due = due.iter();
        self.scope.due = due.map(|one| (one.pid, one.first_seen_ns)).collect();
        &self.scope
    }

    /// Takes in a report with verdicts in [`Metrics::scope`].
    pub fn update(&mut self, report: &Report, own: &OwnUse) {
        self.reports += 1;
        let mut all = ProcessesSeries::default();
        if let Some(memleak) = &report.memleak {
            self.add_memory(&mut all, report, memleak);
        }
        self.add_launches(&mut all, report);
        add_copies(&mut all, report);
        for cost in &report.tracing_costs {
            if let Some(series) = all.get_mut(&cost.pid) {
                let thousandths = (cost.share_of_thread * 1e3).round() as u64;
                series.add("gpuprobe_tracing_cost_ratio", vec![], thousandths);
            }
        }
        let mut host = host_series(report, own);
        // Two are added last.
        let limit = self.scope.limits.series;
        let mut left = limit.saturating_sub(host.values.len() + 2);
        let count: usize = all.values().map(|one| one.values.len()).sum();
        if count > left {
            // What the others are summed as needs room, too.
            let keys = |one: &SeriesSet| -> Vec<_> {
                let keys = one.values.keys();
                keys.map(|key| one.summed(key)).collect()
            };
            let summed: HashSet<_> = all.values().flat_map(keys).collect();
            left = left.saturating_sub(summed.len());
        }
        // Those that had series of their own keep them.
        let admitted = std::mem::take(&mut self.admitted);
        all.sort_by(|a, _, b, _| admitted.contains(b).cmp(&admitted.contains(a)));
        let mut families = Families::default();
        let mut merged = 0;
        for (pid, process) in all {
            merged += process.merged;
            if let Some(rest) = left.checked_sub(process.values.len()) {
                left = rest;
                self.admitted.insert(pid);
                process.add_to(&mut families);
                continue;
            }
            merged += process.values.len() as u64;
            for (key, value) in &process.values {
                let (metric, labels) = process.summed(key);
                host.add(metric, labels, *value);
            }
        }
        for (key, value) in &mut host.values {
            if key.0.ends_with("_total") {
                let known = self.totals.entry(key.clone()).or_default();
                *known = (*known).max(*value);
                *value = *known;
            }
        }
        let served = families.values().map(Vec::len).sum::<usize>() + host.values.len() + 2;
        host.add("gpuprobe_series", vec![], served as u64);
        host.add("gpuprobe_merged_series", vec![], merged);
        host.add_to(&mut families);
        self.families = Arc::new(families);
    }

    fn add_memory(&mut self, all: &mut ProcessesSeries, report: &Report, memleak: &Memleak) {
        let most = self.scope.limits.sites;
        for process in memleak.processes.iter().filter(|process| !process.exited) {
            let (pid, bytes) = (process.who.pid, process.live.gpu.bytes);
            let (container, cgroup) = (process.container.as_deref(), process.cgroup.as_deref());
            let labelled = process_labels(&process.who, container, cgroup);
            let mut series = SeriesSet::new(labelled);
            series.add_memory(process, memleak);
            if !process.traced {
                series.add_verdicts(report, pid, most);
                all.insert(pid, series);
                continue;
            }
            if let Some(&first_seen_ns) = self.scope.due.get(&pid) {
                let mut details = SeriesSet::default();
                details.add_details(process);
                details.add_copy_sites(report, pid);
                details.add_verdicts(report, pid, most);
                let details = ProcessDetails {
                    first_seen_ns,
                    report: self.reports,
                    series: details,
                };
                self.details.insert(pid, details);
            }
            if let Some(details) = self.details.get(&pid) {
                series.values.extend(details.series.values.clone());
                series.merged += details.series.merged;
            }
            series.add_rest(SITE, labels([("site", OTHER), ("owner", OTHER)]), bytes);
            series.add_rest(OWNER, labels([("owner", OTHER)]), bytes);
            all.insert(pid, series);
        }
    }

    /// Adds the launches of live processes, and notes which kernels have series.
    fn add_launches(&mut self, all: &mut ProcessesSeries, report: &Report) {
        self.scope.kernels.clear();
        let Some(trace) = &report.cudatrace else {
            return;
        };
        for process in trace.processes.iter().filter(|process| !process.exited) {
            let series = series_of(all, &process.who);
            series.merged += process.omitted_kernels;
            if process.omitted_launches > 0 {
                let other = labels([("kernel", OTHER)]);
                series.add(LAUNCHES, other, process.omitted_launches);
            }
        }
        let live = trace.kernels.iter().filter(|kernel| !kernel.exited);
        for kernel in live.filter(|kernel| kernel.launches > 0) {
            let kernels = self.scope.kernels.entry(kernel.process).or_default();
            kernels.insert(kernel.mangled.as_ref().unwrap_or(&kernel.name).clone());
            let name = match kernel.mangled {
                Some(_) => clean_name(&names::simplify(&kernel.name)),
                None => UNKNOWN.to_owned(),
            };
            if let Some(series) = all.get_mut(&kernel.pid) {
                series.add(LAUNCHES, vec![("kernel", name)], kernel.launches);
            }
        }
    }
}

/// Series of a process or of the host.
#[derive(Debug, Default)]
struct SeriesSet {
    /// Labels that all have.
    labels: Arc<Labels>,
    /// Values by metric and further labels.
    values: BTreeMap<Key, u64>,
    /// Number of kernels and call sites that are summed as `other`.
    merged: u64,
}

impl SeriesSet {
    fn new(labels: Labels) -> Self {
        Self {
            labels: Arc::new(labels),
            ..Self::default()
        }
    }

    /// Adds `value` to the series with these labels. A verdict is given or not, however often.
    fn add(&mut self, metric: &'static str, labels: Labels, value: u64) {
        let sum = self.values.entry((metric, labels)).or_default();
        *sum = match metric {
            "gpuprobe_verdict" => value,
            _ => sum.saturating_add(value),
        };
    }

    /// Adds what all series of `metric` lack to `total`.
    fn add_rest(&mut self, metric: &'static str, labels: Labels, total: u64) {
        let series = self.values.iter().filter(|((of, _), _)| *of == metric);
        let listed = series.fold(0, |sum: u64, (_, value)| sum.saturating_add(*value));
        if total > listed {
            self.add(metric, labels, total - listed);
        }
    }

    fn add_to(self, families: &mut Families) {
        for ((metric, labels), value) in self.values {
            let one = (Arc::clone(&self.labels), labels, value);
            families.entry(metric).or_default().push(one);
        }
    }

    /// Metric and labels of the sum over processes of which a series is a part.
    fn summed(&self, (metric, labels): &Key) -> Key {
        let own = labels.iter().map(|(name, value)| match *name {
            "owner" | "site" | "kernel" => (*name, OTHER.to_owned()),
            _ => (*name, value.clone()),
        });
        let process = self.labels.iter().map(|(name, _)| *name);
        let process = process.map(|name| (name, OTHER.to_owned()));
        (*metric, process.chain(own).collect())
    }

    /// Adds memory by GPU and kind, on the host, imported, and as NVML has it.
    fn add_memory(&mut self, process: &ProcessReport, memleak: &Memleak) {
        for &(index, kind, total) in &process.device_kinds {
            let device = process.devices.iter().find(|one| one.device == index);
            let device = device.map_or_else(Default::default, |one| one.identity.clone());
            let gpu = device.physical_index.or(index.map(u32::from));
            let mut labels = gpu_labels(device.uuid.as_deref(), gpu);
            labels.push(("kind", kind.name().to_owned()));
            self.add("gpuprobe_gpu_memory_bytes", labels.clone(), total.bytes);
            self.add("gpuprobe_gpu_memory_allocations", labels, total.allocations);
        }
        for (kind, sum) in &process.kinds.0 {
            let labels = labels([("kind", kind.name())]);
            match kind.belongs() {
                Belongs::Gpu => {}
                Belongs::Elsewhere => {
                    self.add("gpuprobe_imported_memory_bytes", labels, sum.bytes);
                }
                Belongs::Host => {
                    self.add("gpuprobe_host_memory_bytes", labels.clone(), sum.bytes);
                    self.add("gpuprobe_host_memory_allocations", labels, sum.allocations);
                }
            }
        }
        if let Some(moved) = process.checkpointed {
            self.add(
                "gpuprobe_checkpointed_memory_bytes",
                Vec::new(),
                moved.bytes,
            );
        }
        for share in &process.gpus {
            if let Some(bytes) = share.used_bytes {
                let mut gpus = memleak.gpus.iter();
                let gpu = gpus.find(|gpu| Some(gpu.index) == share.index);
                let labels = gpu_labels(gpu.map(|gpu| gpu.uuid.as_str()), share.index);
                self.add("gpuprobe_process_gpu_used_bytes", labels, bytes);
            }
        }
    }

    /// Adds call sites, owners, and what PyTorch's and TensorFlow's allocators have.
    fn add_details(&mut self, process: &ProcessReport) {
        self.add_sites(SITE, process.listed());
        let omitted = process.lists.omitted;
        self.merged += omitted.map_or(0, |omitted| omitted.sites);
        for owner in &process.owners {
            let labels = vec![("owner", clean_name(&owner.owner))];
            self.add(OWNER, labels, owner.live.bytes);
        }
        for pool in process.pytorch() {
            let gpu = pool.physical_index.unwrap_or(pool.device.into());
            let labels = vec![("gpu", gpu.to_string())];
            let (allocated, reserved) = (pool.allocated_bytes, pool.reserved_bytes);
            self.add(
                "gpuprobe_pytorch_allocated_bytes",
                labels.clone(),
                allocated,
            );
            self.add("gpuprobe_pytorch_reserved_bytes", labels, reserved);
        }
        for pool in &process.allocators {
            let sites = pool.lists.sites.as_deref();
            self.add_sites(TENSOR_SITE, sites.unwrap_or_default());
            if let Some(omitted) = pool.lists.omitted {
                let other = labels([("site", OTHER), ("owner", OTHER)]);
                self.add(TENSOR_SITE, other, omitted.bytes);
                self.merged += omitted.sites;
            }
        }
    }

    fn add_sites(&mut self, metric: &'static str, sites: &[SiteReport]) {
        for site in sites.iter().filter(|site| site.live.gpu.bytes > 0) {
            let (name, owner) = (clean_name(&site.label), clean_name(&site.owner));
            let labels = vec![("site", name), ("owner", owner)];
            self.add(metric, labels, site.live.gpu.bytes);
        }
    }

    /// Adds the call sites whose copies took longest. There is no series for the others: as a site joins these, it would
    /// fall, which a counter must not.
    fn add_copy_sites(&mut self, report: &Report, pid: u32) {
        let copies = report.bandwidth_util.iter();
        let sites = copies.flat_map(|copies| &copies.sites);
        for site in sites.filter(|site| site.pid == pid) {
            let labels = labels([
                ("site", &clean_name(&site.label)),
                ("direction", site.direction),
                ("host_memory", site.host_memory.unwrap_or_default()),
            ]);
            for (metric, value) in [
                ("gpuprobe_copy_site_bytes_total", site.bytes),
                ("gpuprobe_copy_site_calls_total", site.calls),
                ("gpuprobe_copy_site_waits_total", site.waits),
            ] {
                self.add(metric, labels.clone(), value);
            }
        }
    }

    /// Adds the worst verdicts on a process.
    fn add_verdicts(&mut self, report: &Report, pid: u32, most: usize) {
        let explained = report.explain.iter();
        let verdicts = explained.flat_map(|explain| explain.of_process(pid));
        for one in verdicts.take(most) {
            let site = one.label.as_deref().map(clean_name).unwrap_or_default();
            let (verdict, confidence) = (one.verdict.name(), one.confidence.name());
            let names = [
                ("verdict", verdict),
                ("confidence", confidence),
                ("site", &site),
            ];
            self.add("gpuprobe_verdict", labels(names), 1);
        }
    }
}

/// Adds the copies of live processes.
fn add_copies(all: &mut ProcessesSeries, report: &Report) {
    let copies = report.bandwidth_util.iter();
    let directions = copies.flat_map(|copies| &copies.directions);
    for one in directions.filter(|one| !one.exited) {
        let series = series_of(all, &one.who);
        let labels = labels([("direction", one.direction), ("mode", one.mode)]);
        series.add("gpuprobe_copy_bytes_total", labels.clone(), one.bytes);
        series.add("gpuprobe_copies_total", labels, one.calls);
    }
}

/// Counts over all processes since the start, the GPUs of the host, and gpuprobe itself.
fn host_series(report: &Report, own: &OwnUse) -> SeriesSet {
    let mut series = SeriesSet::default();
    let mut add = |metric, value| series.add(metric, vec![], value);
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    add("process_cpu_seconds_total", millis(own.cpu));
    add("process_resident_memory_bytes", own.resident_bytes);
    add("process_start_time_seconds", millis(own.start));
    let processes = report.memleak.iter().flat_map(|memleak| &memleak.processes);
    let traced = processes.filter(|one| one.traced && !one.exited).count();
    add("gpuprobe_traced_processes", traced as u64);
    if let Some(memleak) = &report.memleak {
        let refused = report.refused.unwrap_or_default();
        add("gpuprobe_alloc_calls_total", memleak.alloc_calls);
        add("gpuprobe_free_calls_total", memleak.free_calls);
        add("gpuprobe_failed_calls_total", memleak.failed_calls);
        add("gpuprobe_unknown_frees_total", memleak.unknown_frees);
        add("gpuprobe_oom_total", refused.incidents);
        add("gpuprobe_oom_calls_total", refused.calls);
    }
    if let Some(trace) = &report.cudatrace {
        add("gpuprobe_node_kernel_launches_total", trace.launches);
        add("gpuprobe_node_graph_launches_total", trace.graph_launches);
        let captured = trace.captured_launches;
        add("gpuprobe_node_captured_launches_total", captured);
    }
    if let Some(copies) = &report.bandwidth_util {
        add("gpuprobe_node_failed_copies_total", copies.failed_calls);
        for one in &copies.directions {
            let labels = labels([("direction", one.direction), ("mode", one.mode)]);
            series.add("gpuprobe_node_copy_bytes_total", labels.clone(), one.bytes);
            series.add("gpuprobe_node_copies_total", labels, one.calls);
        }
    }
    for gpu in report.memleak.iter().flat_map(|memleak| &memleak.gpus) {
        let mut labels = gpu_labels(Some(&gpu.uuid), Some(gpu.index));
        labels.push(("model", clean(&gpu.name)));
        if let Some(bytes) = gpu.used_bytes {
            series.add("gpuprobe_gpu_used_bytes", labels.clone(), bytes);
        }
        if let Some(bytes) = gpu.total_bytes {
            series.add("gpuprobe_gpu_capacity_bytes", labels, bytes);
        }
    }
    for (what, count) in report.lost.by_name() {
        series.add("gpuprobe_lost_events_total", vec![("what", what)], count);
    }
    let version = labels([("version", env!("CARGO_PKG_VERSION"))]);
    series.add("gpuprobe_build_info", version, 1);
    series
}

const SITE: &str = "gpuprobe_memory_site_bytes";
const TENSOR_SITE: &str = "gpuprobe_tensor_site_bytes";
const OWNER: &str = "gpuprobe_memory_owner_bytes";
const LAUNCHES: &str = "gpuprobe_kernel_launches_total";

/// Value of labels where several series are summed.
const OTHER: &str = "other";
/// Kernels and call sites without a name.
const UNKNOWN: &str = "unknown";
/// Maximum number of characters of a label's value.
const MAX_CHARACTERS: usize = 160;

/// The series of a process, which may have no memory.
fn series_of<'a>(all: &'a mut ProcessesSeries, who: &Who) -> &'a mut SeriesSet {
    all.entry(who.pid)
        .or_insert_with(|| SeriesSet::new(process_labels(who, None, None)))
}

fn labels<const COUNT: usize>(labels: [(&'static str, &str); COUNT]) -> Labels {
    labels.map(|(name, value)| (name, value.to_owned())).into()
}

/// The labels that all series of a process have.
fn process_labels(who: &Who, container: Option<&str>, cgroup: Option<&str>) -> Labels {
    let pod = cgroup.and_then(pod_uid_in);
    let text = |text: Option<&str>| text.map(clean).unwrap_or_default();
    let uid = who.uid.map_or(String::new(), |uid| uid.to_string());
    vec![
        ("pid", who.pid.to_string()),
        ("comm", text(who.comm.as_deref())),
        ("uid", uid),
        ("container_id", text(container)),
        ("pod_uid", text(pod.as_deref())),
    ]
}

fn gpu_labels(uuid: Option<&str>, index: Option<u32>) -> Labels {
    let index = index.map_or(String::new(), |index| index.to_string());
    vec![
        ("gpu_uuid", uuid.map(clean).unwrap_or_default()),
        ("gpu", index),
    ]
}

/// `text`, which a traced program may have chosen, as a label's value: without control characters, and of
/// limited length.
fn clean(text: &str) -> String {
    let text = printable(text);
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// [`clean`], without addresses: offsets in a file remain.
fn clean_name(text: &str) -> String {
    let kept = without_addresses(text);
    match kept.trim_matches(|c: char| c == '?' || c == '@' || c.is_whitespace()) {
        "" => UNKNOWN.to_owned(),
        _ => clean(&kept),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
