//! Kernels, copies and busy time of GPUs by bin of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::bins::{Bins, SumsByBin};
use super::document::{BusyData, CopyData, GpuData, KernelData};
use crate::Report;
use crate::names::simplify;
use gpuprobe_cuda::{Direction, nsys};
use gpuprobe_engine::activity::by_work::{ByWork, Spent, WorkKind};
use gpuprobe_engine::transfers::Mode;
use gpuprobe_model::activity::{ActivityBatch, ActivityRecord};
use gpuprobe_stacks::symbols;

/// Kernels with a row of their own; the others of a process share one.
const KERNELS: usize = 300;

/// Process, direction and mode.
type CopyKey = (u32, Direction, &'static str);

/// The work of GPUs.
pub(super) struct WorkByBin<'a> {
    bins: &'a Bins,
    /// Runs and their nanoseconds, by process and mangled name.
    kernels: HashMap<(u32, Option<Arc<str>>), SumsByBin<2>>,
    /// Kernels are single launches, without durations.
    is_launched: bool,
    /// Copies, their bytes and nanoseconds.
    copies: BTreeMap<(u32, u8, &'static str), (CopyKey, SumsByBin<3>)>,
    /// By device and bin.
    busy: BTreeMap<u32, Vec<ByWork>>,
    /// By how often bins are merged, 2 to the power of that.
    merged: usize,
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl<'a> WorkByBin<'a> {
    pub(super) fn new(bins: &'a Bins) -> Self {
        Self {
            bins,
            kernels: HashMap::new(),
            is_launched: false,
            copies: BTreeMap::new(),
            busy: BTreeMap::new(),
            merged: 1,
        }
    }

    /// Adds records; `since_first` converts their times, and `takes_copies` says whether copies are added as run.
    pub(super) fn batch(
        &mut self,
        batch: &ActivityBatch,
        since_first: impl Fn(u64) -> i64,
        takes_copies: bool,
    ) {
        for activity in &batch.activities {
            let (work, device, start_ns, end_ns) = match &activity.record {
                ActivityRecord::Kernel(r) => (WorkKind::Kernel, r.device, r.start_ns, r.end_ns),
                ActivityRecord::Memcpy(r) => (WorkKind::Copy, r.device, r.start_ns, r.end_ns),
                ActivityRecord::Memset(r) => (WorkKind::Set, r.device, r.start_ns, r.end_ns),
                ActivityRecord::GraphTrace(r) => (WorkKind::Graph, r.device, r.start_ns, r.end_ns),
                _ => continue,
            };
            let (start, end) = (since_first(start_ns), since_first(end_ns));
            self.busy(work, device, start, end);
            let ns = end_ns.saturating_sub(start_ns);
            match &activity.record {
                ActivityRecord::Kernel(_) => {
                    let kernel = self.kernels.entry((batch.pid, activity.name.clone()));
                    kernel
                        .or_default()
                        .add(self.bins.of(start), [1, signed(ns)]);
                }
                ActivityRecord::Memcpy(copy) if takes_copies => {
                    let mode = match copy.flags & 1 {
                        1 => Mode::Async,
                        _ => Mode::Sync,
                    };
                    let key = (batch.pid, nsys::direction(copy.copy_kind), mode.name());
                    self.copied(key, start, copy.size_bytes, ns);
                }
                ActivityRecord::Memset(set) if takes_copies => {
                    self.copied((batch.pid, Direction::Set, ""), start, set.size_bytes, ns);
                }
                _ => {}
            }
        }
    }

    fn busy(&mut self, work: WorkKind, device: u32, start: i64, end: i64) {
        let count = self.bins.count();
        let gpu = self.busy.entry(device);
        let gpu = gpu.or_insert_with(|| vec![ByWork::default(); count]);
        let zero = self.bins.span(0).0;
        let since_zero = |ns: i64| u64::try_from(ns.saturating_sub(zero)).unwrap_or(0);
        let (first, last) = (self.bins.of(start), self.bins.of(end.max(start)));
        for (bin, by_work) in gpu.iter_mut().enumerate().take(last + 1).skip(first) {
            let (begins, ends) = self.bins.span(bin);
            let begins = if bin == first { start } else { begins };
            let ends = if bin == last { end } else { ends };
            by_work.add(work, since_zero(begins), since_zero(ends));
        }
    }

    /// Adds a copy that began at `time_ns`.
    pub(super) fn copied(&mut self, key: CopyKey, time_ns: i64, bytes: u64, ns: u64) {
        let sorted = (key.0, key.1 as u8, key.2);
        let (_, sums) = self
            .copies
            .entry(sorted)
            .or_insert((key, SumsByBin::default()));
        sums.add(self.bins.of(time_ns), [1, signed(bytes), signed(ns)]);
    }

    /// Whether runs of kernels were recorded.
    pub(super) fn has_runs(&self) -> bool {
        !self.kernels.is_empty()
    }

    /// Adds the launch of a kernel.
    pub(super) fn launched(&mut self, pid: u32, name: Arc<str>, time_ns: i64) {
        self.is_launched = true;
        let kernel = self.kernels.entry((pid, Some(name))).or_default();
        kernel.add(self.bins.of(time_ns), [1, 0]);
    }

    /// Leaves out launches if they are not all of those that were counted.
    pub(super) fn check_launches(&mut self, counted: u64) {
        let found: i64 = self.kernels.values().map(|sums| sums.total()[0]).sum();
        if found.unsigned_abs() != counted {
            self.kernels.clear();
        }
    }

    /// Number of bins with figures.
    pub(super) fn len(&self) -> usize {
        let kernels = self.kernels.values().map(SumsByBin::len);
        let copies = self.copies.values().map(|(_, sums)| sums.len());
        kernels.chain(copies).sum()
    }

    /// Merges neighbouring bins.
    pub(super) fn halve(&mut self) {
        self.kernels.values_mut().for_each(SumsByBin::halve);
        self.copies.values_mut().for_each(|(_, sums)| sums.halve());
        self.merged *= 2;
    }

    /// The GPUs of the report, with their busy time by bin.
    pub(super) fn gpus(&self, report: &Report) -> Vec<GpuData> {
        let gpus = report.about.iter().flat_map(|about| &about.gpus);
        let gpus = gpus.map(|gpu| {
            let bins = self.busy.get(&gpu.device);
            let spent: Vec<Spent> = bins.into_iter().flatten().map(ByWork::spent).collect();
            let sums = |ns: fn(&Spent) -> u64| {
                let bins = spent.chunks(self.merged);
                bins.map(|bins| bins.iter().map(ns).sum()).collect()
            };
            GpuData {
                whole: gpu.clone(),
                bins: BusyData {
                    kernels: sums(|spent| spent.kernel_ns),
                    copies: sums(|spent| spent.copy_ns),
                    sets: sums(|spent| spent.set_ns),
                    graphs: sums(|spent| spent.graph_ns),
                    busy: sums(|spent| spent.any_ns),
                },
            }
        });
        gpus.collect()
    }

    /// Copies by process, direction and mode.
    pub(super) fn copies(&self) -> Vec<CopyData> {
        let copies = self.copies.values();
        let copies = copies.map(|((pid, direction, mode), sums)| CopyData {
            pid: *pid,
            direction: direction.name(),
            mode,
            changes: sums.flat(),
        });
        copies.collect()
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
        let mut others: BTreeMap<u32, SumsByBin<2>> = BTreeMap::new();
        for ((pid, _), sums) in kernels.split_off(kernels.len().min(KERNELS)) {
            others.entry(pid).or_default().merge(&sums);
        }
        let name = |name: Option<Arc<str>>| {
            name.map_or("(no name)".to_owned(), |name| symbols::demangle(&name))
        };
        let named = kernels
            .into_iter()
            .map(|((pid, mangled), sums)| (pid, name(mangled), sums));
        let others = others
            .into_iter()
            .map(|(pid, sums)| (pid, "(other kernels)".to_owned(), sums));
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
