//! Report of launches by kernel.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use gpuprobe_model::text::hex;
use hashbrown::HashMap;
use serde::Serialize;

use super::{Options, as_map};
use crate::options::ScrapeScope;
use crate::words::Who;
use gpuprobe_cuda::Op;
use gpuprobe_engine::Launches;
use gpuprobe_engine::launches::{CountedLaunch, LaunchCount, Launcher};
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_stacks::symbols;

/// Launches of all processes since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cudatrace {
    /// Kernel launches that ran.
    pub launches: u64,
    /// Graph launches that ran.
    pub graph_launches: u64,
    /// Kernel launches captured into a graph instead of run.
    pub captured_launches: u64,
    /// Launches that ran, by function.
    #[serde(serialize_with = "as_map")]
    pub calls: Vec<(&'static str, u64)>,
    /// Processes that launched kernels, by descending number of launches.
    pub processes: Vec<LauncherReport>,
    /// Kernels, by descending number of launches; `--top` limits their number per process.
    pub kernels: Vec<KernelReport>,
    /// Graph launches by process.
    pub graphs: Vec<GraphReport>,
}

impl Cudatrace {
    /// Whether nothing was launched, nor captured.
    pub fn is_empty(&self) -> bool {
        self.launches + self.graph_launches + self.captured_launches == 0
    }
}

/// A process that launches kernels.
#[derive(Clone, Debug, Serialize)]
pub struct LauncherReport {
    /// The process.
    #[serde(flatten)]
    pub who: Who,
    /// Whether it has ended or called `exec`.
    pub exited: bool,
    /// Number of launches that ran.
    pub launches: u64,
    /// Launches that ran, by function.
    #[serde(serialize_with = "as_map")]
    pub calls: Vec<(&'static str, u64)>,
    /// Number of different kernels that ran.
    pub kernels: u64,
    /// Number of kernels omitted by `--top`.
    pub omitted_kernels: u64,
    /// Number of launches of the omitted kernels.
    pub omitted_launches: u64,
    /// Launches that ran, of all its kernels, per second since the last report.
    pub per_second: f64,
    /// Distinguishes processes and programs with the same process id.
    #[serde(skip)]
    pub id: u32,
}

/// A kernel of a process.
#[derive(Clone, Debug, Serialize)]
pub struct KernelReport {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// User id of the process, if known.
    pub uid: Option<u32>,
    /// Name (comm) of the process, if known.
    pub comm: Option<String>,
    /// Whether the process has ended or called `exec`.
    pub exited: bool,
    /// Demangled name of the kernel; its handle in hex if unknown.
    pub name: String,
    /// Mangled name of the kernel, if known.
    pub mangled: Option<String>,
    /// The handle passed to the first launch that was seen.
    #[serde(serialize_with = "hex")]
    pub handle: u64,
    /// Number of launches that ran.
    pub launches: u64,
    /// Number of launches captured into a graph.
    pub captured_launches: u64,
    /// Launches that ran, per second since the last report.
    pub per_second: f64,
    /// Blocks of the first launch, in x, y and z.
    pub grid: [u32; 3],
    /// Threads per block of the first launch, in x, y and z.
    pub block: [u32; 3],
    /// Name of the function that launched it most often.
    pub api: &'static str,
    /// `id` of its [`LauncherReport`].
    #[serde(skip)]
    pub process: u32,
}

/// Graph launches of a process.
#[derive(Clone, Debug, Serialize)]
pub struct GraphReport {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// Number of different executable graphs.
    pub graphs: u64,
    /// Number of launches of these.
    pub launches: u64,
}

/// Builds the report of launches. A training job has tens of thousands of kernels, and a report shows ten: names are
/// demangled for those only. A report for a scrape lists the kernels again that it has listed.
pub(crate) fn build(
    launches: &Launches,
    options: &Options,
    scope: Option<&ScrapeScope>,
) -> Cudatrace {
    let mut report = Cudatrace::default();
    let mut calls = CallsByRow::new();
    let mut graphs: BTreeMap<u32, GraphReport> = BTreeMap::new();
    let mut processes: BTreeMap<u32, ProcessSum<'_>> = BTreeMap::new();
    for launch in launches.counted() {
        let CountedLaunch { key, counted, .. } = launch;
        let Some(function) = gpuprobe_cuda::function(key.row) else {
            continue;
        };
        report.captured_launches += counted.captured;
        if function.op == Op::GraphLaunch {
            report.graph_launches += counted.runs;
            let graph = graphs.entry(key.process).or_insert_with(|| GraphReport {
                pid: launch.launcher.map_or(0, |l| l.pid),
                graphs: 0,
                launches: 0,
            });
            graph.graphs += 1;
            graph.launches += counted.runs;
            continue;
        }
        report.launches += counted.runs;
        *calls.entry(key.row).or_default() += counted.runs;
        let is_over = launch.launcher.is_some_and(|l| l.end_reported);
        if !is_over || options.is_final {
            processes.entry(key.process).or_default().add(&launch);
        }
    }
    report.calls = named(&calls);
    report.graphs = graphs.into_values().collect();
    let mut listed = Vec::new();
    for (id, process) in processes {
        let mut launcher = process.report(id, options);
        let top = options.of_process(launcher.who.pid).top;
        let top = scope.map(|scope| scope.limits.kernels).or(top);
        let known = scope.and_then(|scope| scope.kernels.get(&id));
        let mut kernels: Vec<_> = process.kernels.into_iter().collect();
        // Those that were only captured have not run, and are not counted.
        if let Some(top) = top.filter(|top| launcher.kernels > *top as u64) {
            kernels.select_nth_unstable_by(top, |a, b| rank(known, a).cmp(&rank(known, b)));
            let omitted = kernels.drain(top..);
            launcher.omitted_kernels = omitted.len() as u64;
            launcher.omitted_launches = omitted.map(|(_, sum)| sum.runs).sum();
        }
        let place = report.processes.len();
        listed.extend(kernels.into_iter().map(|kernel| (place, kernel)));
        report.processes.push(launcher);
    }
    let all = &report.processes;
    listed.sort_by(|(a_place, (a_key, a)), (b_place, (b_key, b))| {
        let (a_pid, b_pid) = (all[*a_place].who.pid, all[*b_place].who.pid);
        (Reverse(a.runs), a_pid, a_key).cmp(&(Reverse(b.runs), b_pid, b_key))
    });
    let kernels = listed
        .iter()
        .map(|(place, (key, sum))| sum.report(key.0, &all[*place], options));
    report.kernels = kernels.collect();
    report
        .processes
        .sort_by_key(|p| (Reverse(p.launches), p.who.pid));
    report
}

/// Launches that ran, by row of the function table.
type CallsByRow = BTreeMap<u16, u64>;

/// The functions that were called, in the order of the table.
fn named(calls: &CallsByRow) -> Vec<(&'static str, u64)> {
    let called = calls.iter().filter(|(_, runs)| **runs > 0);
    let named =
        called.filter_map(|(&row, &runs)| Some((gpuprobe_cuda::function(row)?.symbol, runs)));
    named.collect()
}

/// A kernel of a process: its mangled name; without one, its handle.
type KernelKey<'a> = (Option<&'a Arc<str>>, u64);

/// Launches of one kernel, over all its handles and functions.
struct KernelCounts<'a> {
    runs: u64,
    captured: u64,
    /// `runs` since the last report.
    recent: u64,
    /// The part with the most launches.
    most: (&'a RawLaunchKey, &'a LaunchCount),
}

/// Order of the kernels of a process: those in `known` first, then by launches, then by name.
fn rank<'a>(
    known: Option<&HashSet<String>>,
    (key, sum): &(KernelKey<'a>, KernelCounts<'a>),
) -> impl Ord + use<'a> {
    let is_known = known.is_some_and(|known| match key.0 {
        Some(mangled) => known.contains(&**mangled),
        None => known.contains(&format!("{:#x}", key.1)),
    });
    (!is_known, Reverse(sum.runs), *key)
}

/// Launches of one process.
#[derive(Default)]
struct ProcessSum<'a> {
    launcher: Option<&'a Launcher>,
    calls: CallsByRow,
    kernels: HashMap<KernelKey<'a>, KernelCounts<'a>>,
}

impl<'a> ProcessSum<'a> {
    fn add(&mut self, launch: &CountedLaunch<'a>) {
        let CountedLaunch { key, counted, .. } = *launch;
        self.launcher = launch.launcher;
        *self.calls.entry(key.row).or_default() += counted.runs;
        let handle = match launch.mangled {
            Some(_) => 0,
            None => key.handle,
        };
        let entry = self.kernels.entry((launch.mangled, handle));
        let sum = entry.or_insert(KernelCounts {
            runs: 0,
            captured: 0,
            recent: 0,
            most: (key, counted),
        });
        sum.runs += counted.runs;
        sum.captured += counted.captured;
        sum.recent += counted.runs.saturating_sub(counted.runs_reported);
        let rank = |(key, counted): (&RawLaunchKey, &LaunchCount)| {
            (Reverse(counted.runs), key.handle, key.row)
        };
        if rank((key, counted)) < rank(sum.most) {
            sum.most = (key, counted);
        }
    }

    /// The process without omitted kernels.
    fn report(&self, id: u32, options: &Options) -> LauncherReport {
        let sums = || self.kernels.values();
        let launcher = self.launcher;
        let who = launcher.map(|l| Who::named(l.pid, l.uid, l.comm.as_deref()));
        LauncherReport {
            who: who.unwrap_or_default(),
            exited: launcher.is_some_and(|l| l.exited),
            launches: sums().map(|sum| sum.runs).sum(),
            calls: named(&self.calls),
            kernels: sums().filter(|sum| sum.runs > 0).count() as u64,
            omitted_kernels: 0,
            omitted_launches: 0,
            per_second: per_second(sums().map(|sum| sum.recent).sum(), options),
            id,
        }
    }
}

fn per_second(recent: u64, options: &Options) -> f64 {
    recent as f64 / options.since_last.as_secs_f64().max(1e-9)
}

impl KernelCounts<'_> {
    fn report(
        &self,
        mangled: Option<&Arc<str>>,
        launcher: &LauncherReport,
        options: &Options,
    ) -> KernelReport {
        let (key, most) = self.most;
        let name = match mangled {
            Some(mangled) => symbols::demangle(mangled),
            None => format!("{:#x}", key.handle),
        };
        KernelReport {
            pid: launcher.who.pid,
            uid: launcher.who.uid,
            comm: launcher.who.comm.clone(),
            exited: launcher.exited,
            name,
            mangled: mangled.map(ToString::to_string),
            handle: key.handle,
            launches: self.runs,
            captured_launches: self.captured,
            per_second: per_second(self.recent, options),
            grid: most.grid,
            block: most.block,
            api: gpuprobe_cuda::function(key.row).map_or("", |f| f.symbol),
            process: launcher.id,
        }
    }
}
