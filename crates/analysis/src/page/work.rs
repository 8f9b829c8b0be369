//! Kernels, copies and busy time of GPUs by bin of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::Result;
use serde::Serialize;

use crate::timeline::{BinSums, Bins};
use crate::work::{CalledCopy, each_launch, has_single_launches, work_of};
use crate::{File, Observer};
use gpuprobe_cuda::{Direction, nsys};
use gpuprobe_engine::activity::by_work::{ByWork, Spent, WorkKind};
use gpuprobe_engine::transfers::Mode;
use gpuprobe_model::activity::{ActivityBatch, ActivityRecord};
use gpuprobe_recording::gpu_rows::ZERO_NS;
use gpuprobe_report::Report;
use gpuprobe_report::about::GpuTime;
use gpuprobe_report::names::simplify;
use gpuprobe_stacks::symbols;

/// Kernels with a row of their own; the others of a process share one.
const KERNELS: usize = 300;

/// A GPU with its busy time.
#[derive(Debug, Serialize)]
pub(super) struct GpuData {
    #[serde(flatten)]
    whole: GpuTime,
    /// Nanoseconds of each bin, by kind of work and with any.
    bins: BTreeMap<&'static str, Vec<u64>>,
}

/// Runs of a kernel.
#[derive(Debug, Serialize)]
pub(super) struct KernelData {
    pid: u32,
    name: String,
    /// The name without boilerplate, as in text.
    short: String,
    /// Number of runs; of launches if runs were not recorded.
    pub(super) launches: u64,
    total_ns: Option<u64>,
    /// Three numbers a bin: its number, runs that began in it, and their durations.
    changes: Option<Vec<i64>>,
}

/// Copies of a direction and mode.
#[derive(Debug, Serialize)]
pub(super) struct CopyData {
    pid: u32,
    direction: &'static str,
    /// `sync` or `async`, as called.
    mode: &'static str,
    /// Four numbers a bin: its number, copies that began in it, their bytes and nanoseconds.
    changes: Vec<i64>,
}

/// Process, direction and mode.
type CopyKey = (u32, Direction, &'static str);

/// The work of GPUs.
#[derive(Default)]
pub(super) struct WorkByBin {
    bins: Bins,
    /// Session time from which bins count.
    first_ns: i64,
    /// Runs and their nanoseconds, by process and mangled name.
    kernels: HashMap<(u32, Option<Arc<str>>), BinSums<2>>,
    /// Kernels are single launches, without durations.
    is_launched: bool,
    /// Copies, their bytes and nanoseconds.
    copies: BTreeMap<CopyKey, BinSums<3>>,
    /// Copies are counted as run, as their calls were not recorded.
    takes_copies: bool,
    /// By device and bin.
    busy: BTreeMap<u32, Vec<ByWork>>,
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Observer for WorkByBin {
    fn activity(&mut self, batch: &ActivityBatch) {
        for activity in &batch.activities {
            let Some((work, device, start_ns, end_ns)) = work_of(&activity.record) else {
                continue;
            };
            let ns = end_ns.saturating_sub(start_ns);
            let [start_ns, end_ns] =
                [start_ns, end_ns].map(|ns| ns.cast_signed().wrapping_sub_unsigned(ZERO_NS));
            let since_first = |ns: i64| ns.saturating_sub(self.first_ns);
            let (start, end) = (since_first(start_ns), since_first(end_ns));
            self.busy(work, device, start, end);
            match &activity.record {
                ActivityRecord::Kernel(_) => {
                    let kernel = self.kernels.entry((batch.pid, activity.name.clone()));
                    let bin = self.bins.of(start);
                    kernel.or_default().add(bin, [1, signed(ns)]);
                }
                ActivityRecord::Memcpy(copy) if self.takes_copies => {
                    let is_async = copy.flags & 1 == 1;
                    let mode = if is_async { Mode::Async } else { Mode::Sync };
                    let key = (batch.pid, nsys::direction(copy.copy_kind), mode.name());
                    self.copied(key, start_ns, [copy.size_bytes, ns]);
                }
                ActivityRecord::Memset(set) if self.takes_copies => {
                    let key = (batch.pid, Direction::Set, "");
                    self.copied(key, start_ns, [set.size_bytes, ns]);
                }
                _ => {}
            }
        }
    }

    fn copy(&mut self, copy: &CalledCopy) {
        let of = &copy.which;
        let key = (of.pid, of.direction, of.mode.name());
        self.copied(key, copy.start_ns, [copy.bytes, copy.ns]);
    }
}

impl WorkByBin {
    pub(super) fn new(bins: &Bins, first_ns: i64, takes_copies: bool) -> Self {
        Self {
            bins: bins.clone(),
            first_ns,
            takes_copies,
            ..Self::default()
        }
    }

    fn busy(&mut self, work: WorkKind, device: u32, start: i64, end: i64) {
        let gpu = self.busy.entry(device);
        let gpu = gpu.or_insert_with(|| vec![ByWork::default(); self.bins.count()]);
        let zero = self.bins.edges_ns[0];
        let since_zero = |ns: i64| u64::try_from(ns.saturating_sub(zero)).unwrap_or(0);
        let (first, last) = (self.bins.of(start), self.bins.of(end.max(start)));
        for (bin, by_work) in gpu.iter_mut().enumerate().take(last + 1).skip(first) {
            let edges = &self.bins.edges_ns[bin..];
            let begins = if bin == first { start } else { edges[0] };
            let ends = if bin == last { end } else { edges[1] };
            by_work.add(work, since_zero(begins), since_zero(ends));
        }
    }

    /// Adds a copy that began at this session time, with its bytes and duration.
    fn copied(&mut self, key: CopyKey, start_ns: i64, sums: [u64; 2]) {
        let bin = self.bins.of(start_ns.saturating_sub(self.first_ns));
        let [bytes, ns] = sums.map(signed);
        let copies = self.copies.entry(key).or_default();
        copies.add(bin, [1, bytes, ns]);
    }

    /// Adds launches, if neither runs of kernels nor only counts were recorded: all that were `counted`, or none.
    pub(super) fn launches(&mut self, file: &File, counted: u64) -> Result<()> {
        if !self.kernels.is_empty() || !has_single_launches(&file.database)? {
            return Ok(());
        }
        self.is_launched = true;
        let mut found = 0;
        each_launch(&file.database, file.filter.rows(), false, |launch| {
            if !launch.is_graph && launch.count.captured == 0 {
                found += 1;
                let handle = || format!("{:#x}", launch.key.handle).into();
                let name = launch.mangled.unwrap_or_else(handle);
                let bin = self.bins.of(launch.start_ns.saturating_sub(self.first_ns));
                let kernel = self.kernels.entry((launch.key.process, Some(name)));
                kernel.or_default().add(bin, [1, 0]);
            }
        })?;
        if found != counted {
            self.kernels.clear();
        }
        Ok(())
    }

    /// The GPUs of the report, with their busy time by bin.
    pub(super) fn gpus(&self, report: &Report) -> Vec<GpuData> {
        let gpus = report.about.iter().flat_map(|about| &about.gpus);
        let gpus = gpus.map(|gpu| {
            let bins = self.busy.get(&gpu.device).into_iter().flatten();
            let spent: Vec<Spent> = bins.map(ByWork::spent).collect();
            let bins = |ns: fn(&Spent) -> u64| spent.iter().map(ns).collect();
            GpuData {
                whole: gpu.clone(),
                bins: BTreeMap::from([
                    ("kernels", bins(|spent| spent.kernel_ns)),
                    ("copies", bins(|spent| spent.copy_ns)),
                    ("sets", bins(|spent| spent.set_ns)),
                    ("graphs", bins(|spent| spent.graph_ns)),
                    ("busy", bins(|spent| spent.any_ns)),
                ]),
            }
        });
        gpus.collect()
    }

    /// Copies by process, direction and mode.
    pub(super) fn copies(&self) -> Vec<CopyData> {
        let copy = |((pid, direction, mode), sums): (&CopyKey, &BinSums<3>)| CopyData {
            pid: *pid,
            direction: direction.name(),
            mode,
            changes: sums.flat(),
        };
        self.copies.iter().map(copy).collect()
    }

    /// Kernels by descending time; if there are neither runs nor launches, those that `report` has counted.
    pub(super) fn into_kernels(self, report: &Report) -> Vec<KernelData> {
        if self.kernels.is_empty() {
            let kernels = report.cudatrace.iter().flat_map(|trace| &trace.kernels);
            let counted = kernels.map(|kernel| KernelData {
                pid: kernel.pid,
                short: simplify(&kernel.name),
                name: kernel.name.clone(),
                launches: kernel.launches,
                total_ns: None,
                changes: None,
            });
            return counted.collect();
        }
        let mut kernels: Vec<_> = self.kernels.into_iter().collect();
        kernels.sort_by_cached_key(|(key, sums)| {
            let [runs, ns] = sums.total();
            (Reverse((ns, runs)), key.clone())
        });
        let mut others: BTreeMap<u32, BinSums<2>> = BTreeMap::new();
        for ((pid, _), sums) in kernels.split_off(kernels.len().min(KERNELS)) {
            others.entry(pid).or_default().merge(&sums);
        }
        let name = |name: Option<Arc<str>>| {
            name.map_or("(no name)".to_owned(), |name| symbols::demangle(&name))
        };
        let named = kernels.into_iter();
        let named = named.map(|((pid, mangled), sums)| (pid, name(mangled), sums));
        let others = others.into_iter();
        let others = others.map(|(pid, sums)| (pid, "(other kernels)".to_owned(), sums));
        let kernels = named.chain(others).map(|(pid, name, sums)| {
            let [runs, total_ns] = sums.total().map(i64::unsigned_abs);
            KernelData {
                pid,
                short: simplify(&name),
                name,
                launches: runs,
                total_ns: (!self.is_launched).then_some(total_ns),
                changes: Some(sums.flat()),
            }
        });
        kernels.collect()
    }
}
