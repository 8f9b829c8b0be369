//! Building of the report: sums by kernel, then the largest ones in detail.
//!
//! A training job has tens of thousands of kernels, and a report shows ten: names are demangled and copied
//! only for those listed.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use super::{Cudatrace, GraphReport, KernelReport, LauncherReport};
use crate::Options;
use gpuprobe_cuda::Op;
use gpuprobe_engine::Launches;
use gpuprobe_engine::launches::{CountedLaunch, LaunchCount, Launcher};
use gpuprobe_model::abi::RawLaunchKey;
use gpuprobe_stacks::symbols;

/// Builds the report of launches.
pub(crate) fn build(launches: &Launches, options: &Options) -> Cudatrace {
    let mut report = Cudatrace::default();
    let mut calls = CallsByRow::default();
    let mut graphs: BTreeMap<u32, GraphReport> = BTreeMap::new();
    let mut processes = ProcessSums::default();
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
        calls.add(key.row, counted.runs);
        let over = launch.launcher.is_some_and(|l| l.end_reported);
        if !over || options.is_final {
            processes.add(&launch);
        }
    }
    report.calls = calls.named();
    report.graphs = graphs.into_values().collect();
    report.list(&processes.sums, options);
    report
}

/// A report of the totals and of the processes that launch, without kernels.
pub(crate) fn totals(launches: &Launches) -> Cudatrace {
    let mut report = Cudatrace::default();
    let mut processes: BTreeMap<u32, LauncherReport> = BTreeMap::new();
    for CountedLaunch {
        key,
        counted,
        launcher,
        ..
    } in launches.counted()
    {
        let Some(function) = gpuprobe_cuda::function(key.row) else {
            continue;
        };
        report.captured_launches += counted.captured;
        if function.op == Op::GraphLaunch {
            report.graph_launches += counted.runs;
            continue;
        }
        report.launches += counted.runs;
        if launcher.is_some() {
            let new = || launcher_report(key.process, launcher);
            processes.entry(key.process).or_insert_with(new).launches += counted.runs;
        }
    }
    report.processes = processes.into_values().collect();
    report
}

impl Cudatrace {
    /// Lists the processes, and the largest kernels of each, as `options` limit them.
    fn list(&mut self, sums: &[ProcessSum<'_>], options: &Options) {
        let mut listed = Vec::new();
        for process in sums {
            let mut launcher = process.report(options);
            let mut kernels: Vec<_> = process.kernels.iter().collect();
            let top = options.of_process(launcher.pid).top;
            // Those that were only captured have not run, and are not counted.
            if let Some(top) = top.filter(|top| launcher.kernels > *top as u64) {
                kernels.select_nth_unstable_by(top, |a, b| in_order(a, b));
                let omitted = kernels.drain(top..);
                launcher.omitted_kernels = omitted.len() as u64;
                launcher.omitted_launches = omitted.map(|(_, sum)| sum.runs).sum();
            }
            listed.extend(kernels.into_iter().map(|kernel| (launcher.pid, kernel)));
            self.processes.push(launcher);
        }
        listed.sort_by(|(a_pid, a), (b_pid, b)| {
            let (a_runs, b_runs) = (Reverse(a.1.runs), Reverse(b.1.runs));
            (a_runs, a_pid)
                .cmp(&(b_runs, b_pid))
                .then_with(|| in_order(a, b))
        });
        let kernels = listed.into_iter();
        self.kernels = kernels
            .map(|(_, kernel)| report_of(kernel, options))
            .collect();
        self.processes.sort_by_key(|p| (Reverse(p.launches), p.pid));
    }
}

/// Launches that ran, by row of the function table. There are a handful.
#[derive(Default)]
struct CallsByRow(Vec<(u16, u64)>);

impl CallsByRow {
    fn add(&mut self, row: u16, runs: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == row) {
            Some((_, sum)) => *sum += runs,
            None => self.0.push((row, runs)),
        }
    }

    /// The functions in the order of the table.
    fn named(&self) -> Vec<(&'static str, u64)> {
        let mut calls = self.0.clone();
        calls.sort_unstable();
        let named = calls
            .iter()
            .filter_map(|&(row, runs)| Some((gpuprobe_cuda::function(row)?.symbol, runs)));
        named.filter(|(_, runs)| *runs > 0).collect()
    }
}

/// A kernel of a process: its mangled name; without one, its handle.
type KernelKey<'a> = (Option<&'a Arc<str>>, u64);
type KernelSum<'b, 'a> = (&'b KernelKey<'a>, &'b KernelCounts<'a>);

/// Launches of one kernel, over all its handles and functions.
struct KernelCounts<'a> {
    launcher: Option<&'a Launcher>,
    runs: u64,
    captured: u64,
    /// `runs` since the last report.
    recent: u64,
    /// The part with the most launches.
    most: (&'a RawLaunchKey, &'a LaunchCount),
}

/// Order of the kernels of a process: by launches, then by name.
fn in_order((a_key, a): &KernelSum<'_, '_>, (b_key, b): &KernelSum<'_, '_>) -> Ordering {
    (Reverse(a.runs), a_key).cmp(&(Reverse(b.runs), b_key))
}

/// Launches of one process.
struct ProcessSum<'a> {
    id: u32,
    launcher: Option<&'a Launcher>,
    calls: CallsByRow,
    kernels: HashMap<KernelKey<'a>, KernelCounts<'a>>,
}

#[derive(Default)]
struct ProcessSums<'a> {
    sums: Vec<ProcessSum<'a>>,
    places: HashMap<u32, usize>,
}

impl<'a> ProcessSums<'a> {
    fn add(&mut self, launch: &CountedLaunch<'a>) {
        let id = launch.key.process;
        let place = *self.places.entry(id).or_insert_with(|| {
            self.sums.push(ProcessSum {
                id,
                launcher: launch.launcher,
                calls: CallsByRow::default(),
                kernels: HashMap::new(),
            });
            self.sums.len() - 1
        });
        self.sums[place].add(launch);
    }
}

impl<'a> ProcessSum<'a> {
    fn add(&mut self, launch: &CountedLaunch<'a>) {
        let CountedLaunch { key, counted, .. } = *launch;
        self.calls.add(key.row, counted.runs);
        let handle = match launch.mangled {
            Some(_) => 0,
            None => key.handle,
        };
        let entry = self.kernels.entry((launch.mangled, handle));
        let sum = entry.or_insert(KernelCounts {
            launcher: launch.launcher,
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
    fn report(&self, options: &Options) -> LauncherReport {
        let sums = || self.kernels.values();
        LauncherReport {
            launches: sums().map(|sum| sum.runs).sum(),
            calls: self.calls.named(),
            kernels: sums().filter(|sum| sum.runs > 0).count() as u64,
            per_second: per_second(sums().map(|sum| sum.recent).sum(), options),
            ..launcher_report(self.id, self.launcher)
        }
    }
}

/// The process with this number, with counts of 0.
fn launcher_report(id: u32, launcher: Option<&Launcher>) -> LauncherReport {
    LauncherReport {
        pid: launcher.map_or(0, |l| l.pid),
        uid: launcher.and_then(|l| l.uid),
        comm: launcher.and_then(|l| l.comm.clone()),
        user: None,
        command: None,
        exited: launcher.is_some_and(|l| l.exited),
        launches: 0,
        calls: Vec::new(),
        kernels: 0,
        omitted_kernels: 0,
        omitted_launches: 0,
        per_second: 0.0,
        id,
    }
}

fn per_second(recent: u64, options: &Options) -> f64 {
    recent as f64 / options.since_last.as_secs_f64().max(1e-9)
}

fn report_of(((mangled, _), sum): KernelSum<'_, '_>, options: &Options) -> KernelReport {
    let (key, most) = sum.most;
    let name = match mangled {
        Some(mangled) => symbols::demangle(mangled),
        None => format!("{:#x}", key.handle),
    };
    KernelReport {
        pid: sum.launcher.map_or(0, |l| l.pid),
        uid: sum.launcher.and_then(|l| l.uid),
        comm: sum.launcher.and_then(|l| l.comm.clone()),
        exited: sum.launcher.is_some_and(|l| l.exited),
        name,
        mangled: mangled.map(ToString::to_string),
        handle: key.handle,
        launches: sum.runs,
        captured_launches: sum.captured,
        per_second: per_second(sum.recent, options),
        grid: most.grid,
        block: most.block,
        api: gpuprobe_cuda::function(key.row).map_or("", |f| f.symbol),
        process: key.process,
    }
}
