//! Report of launches by kernel.

use gpuprobe_model::text::hex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;

use super::{Options, as_map};
use gpuprobe_cuda::Op;
use gpuprobe_engine::Launches;
use gpuprobe_engine::launches::{LaunchCount, Launcher};
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

/// A process that launches kernels.
#[derive(Clone, Debug, Serialize)]
pub struct LauncherReport {
    /// Process id (tgid) on the host.
    pub pid: u32,
    /// User id, if known.
    pub uid: Option<u32>,
    /// Name (comm) of the process, if known.
    pub comm: Option<String>,
    /// Name of its user, if known.
    pub user: Option<String>,
    /// Its command line, possibly truncated, if known.
    pub command: Option<String>,
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
    pub(super) id: u32,
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
    pub(super) process: u32,
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

/// Launches of one kernel, over all its handles and functions.
#[derive(Default)]
struct KernelLaunches<'a> {
    launcher: Option<&'a Launcher>,
    parts: Vec<(&'a RawLaunchKey, &'a LaunchCount)>,
}

/// Builds the report of launches.
pub(super) fn build(launches: &Launches, options: &Options) -> Cudatrace {
    let mut report = Cudatrace::default();
    let mut calls = BTreeMap::new();
    let mut groups: HashMap<(u32, u64, Option<Arc<str>>), KernelLaunches<'_>> = HashMap::new();
    let mut graphs: BTreeMap<u32, GraphReport> = BTreeMap::new();
    for (key, counted, mangled) in launches.counted() {
        let Some(function) = gpuprobe_cuda::function(key.row) else {
            continue;
        };
        let launcher = launches.launcher_of(key.process);
        report.captured_launches += counted.captured;
        if function.op == Op::GraphLaunch {
            report.graph_launches += counted.runs;
            let pid = launcher.map_or(0, |l| l.pid);
            let graph = graphs.entry(key.process).or_insert(GraphReport {
                pid,
                graphs: 0,
                launches: 0,
            });
            graph.graphs += 1;
            graph.launches += counted.runs;
            continue;
        }
        report.launches += counted.runs;
        *calls.entry(key.row).or_insert(0) += counted.runs;
        let over = launcher.is_some_and(|l| l.end_reported);
        if over && !options.is_final {
            continue;
        }
        let handle = if mangled.is_none() { key.handle } else { 0 };
        let group = groups.entry((key.process, handle, mangled)).or_default();
        group.launcher = launcher;
        group.parts.push((key, counted));
    }
    report.calls = named(&calls);
    report.graphs = graphs.into_values().collect();
    let kernels = groups.into_iter().map(|((_, _, mangled), group)| {
        (group.calls(), kernel(mangled.as_deref(), group, options))
    });
    report.list(kernels.collect(), options);
    report
}

/// A report of the totals and the processes that launch, without kernels.
pub(super) fn totals(launches: &Launches) -> Cudatrace {
    let mut report = Cudatrace::default();
    let mut processes: BTreeMap<u32, LauncherReport> = BTreeMap::new();
    for (key, counted, _) in launches.counted() {
        let Some(function) = gpuprobe_cuda::function(key.row) else {
            continue;
        };
        report.captured_launches += counted.captured;
        if function.op == Op::GraphLaunch {
            report.graph_launches += counted.runs;
            continue;
        }
        report.launches += counted.runs;
        if let Some(one) = launches.launcher_of(key.process) {
            let comm = one.comm.as_ref();
            let new = || LauncherReport::of(key.process, one.pid, one.uid, comm, one.exited);
            processes.entry(key.process).or_insert_with(new).launches += counted.runs;
        }
    }
    report.processes = processes.into_values().collect();
    report
}

impl Cudatrace {
    /// Lists kernels, each with its calls by function; the first of each process, as `options` limit them.
    fn list(&mut self, mut kernels: Vec<(BTreeMap<u16, u64>, KernelReport)>, options: &Options) {
        kernels.sort_by(|(_, a), (_, b)| {
            (Reverse(a.launches), a.pid, &a.name).cmp(&(Reverse(b.launches), b.pid, &b.name))
        });
        let mut processes = BTreeMap::new();
        for (calls, kernel) in kernels {
            let process = processes.entry(kernel.process).or_insert_with(|| {
                let comm = kernel.comm.as_ref();
                LauncherReport::of(kernel.process, kernel.pid, kernel.uid, comm, kernel.exited)
            });
            process.add(&calls, &kernel);
            let top = options.of_process(kernel.pid).top;
            if top.is_some_and(|top| process.kernels > top as u64) {
                process.omitted_kernels += 1;
                process.omitted_launches += kernel.launches;
            } else {
                self.kernels.push(kernel);
            }
        }
        self.processes = processes.into_values().collect();
        self.processes.sort_by_key(|p| (Reverse(p.launches), p.pid));
    }
}

impl LauncherReport {
    /// The process with this number, with counts of 0.
    fn of(id: u32, pid: u32, uid: Option<u32>, comm: Option<&String>, exited: bool) -> Self {
        Self {
            pid,
            uid,
            comm: comm.cloned(),
            user: None,
            command: None,
            exited,
            launches: 0,
            calls: Vec::new(),
            kernels: 0,
            omitted_kernels: 0,
            omitted_launches: 0,
            per_second: 0.0,
            id,
        }
    }

    /// Counts a kernel. One that was only captured has not run, and is not counted among those that
    /// ran.
    fn add(&mut self, calls: &BTreeMap<u16, u64>, kernel: &KernelReport) {
        self.launches += kernel.launches;
        self.per_second += kernel.per_second;
        self.kernels += u64::from(kernel.launches > 0);
        for (symbol, runs) in named(calls) {
            match self.calls.iter_mut().find(|(known, _)| *known == symbol) {
                Some((_, total)) => *total += runs,
                None => self.calls.push((symbol, runs)),
            }
        }
    }
}

impl KernelLaunches<'_> {
    /// Launches that ran, by row of the function table.
    fn calls(&self) -> BTreeMap<u16, u64> {
        let mut calls = BTreeMap::new();
        for (key, counted) in &self.parts {
            *calls.entry(key.row).or_insert(0) += counted.runs;
        }
        calls
    }
}

/// Name of a kernel or graph for text: demangled, or its handle in hex.
pub(super) fn kernel_name(launches: &Launches, key: &RawLaunchKey) -> String {
    let function = gpuprobe_cuda::function(key.row);
    let mangled = launches
        .launcher_of(key.process)
        .and_then(|launcher| launcher.name(key.handle, key.epoch));
    match mangled {
        _ if function.is_some_and(|f| f.op == Op::GraphLaunch) => {
            format!("the graph {:#x}", key.handle)
        }
        Some(mangled) => symbols::demangle(mangled),
        None => format!("{:#x}", key.handle),
    }
}

fn named(calls: &BTreeMap<u16, u64>) -> Vec<(&'static str, u64)> {
    let named = calls
        .iter()
        .filter_map(|(&row, &runs)| Some((gpuprobe_cuda::function(row)?.symbol, runs)));
    named.filter(|(_, runs)| *runs > 0).collect()
}

fn kernel(mangled: Option<&str>, mut group: KernelLaunches<'_>, options: &Options) -> KernelReport {
    group
        .parts
        .sort_by_key(|(key, counted)| (Reverse(counted.runs), key.handle, key.row));
    let sum = |of: fn(&LaunchCount) -> u64| group.parts.iter().map(|(_, c)| of(c)).sum::<u64>();
    let recent = sum(|c| c.runs.saturating_sub(c.runs_reported));
    let (key, first) = group.parts[0];
    let name = match mangled {
        Some(mangled) => symbols::demangle(mangled),
        None => format!("{:#x}", key.handle),
    };
    KernelReport {
        pid: group.launcher.map_or(0, |l| l.pid),
        uid: group.launcher.and_then(|l| l.uid),
        comm: group.launcher.and_then(|l| l.comm.clone()),
        exited: group.launcher.is_some_and(|l| l.exited),
        name,
        mangled: mangled.map(str::to_owned),
        handle: key.handle,
        launches: sum(|c| c.runs),
        captured_launches: sum(|c| c.captured),
        per_second: recent as f64 / options.since_last.as_secs_f64().max(1e-9),
        grid: first.grid,
        block: first.block,
        api: gpuprobe_cuda::function(key.row).map_or("", |f| f.symbol),
        process: key.process,
    }
}
