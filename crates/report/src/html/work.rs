//! Kernels, copies and busy time of GPUs by bin of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::Result;

use super::bins::{Bins, SumsByBin, bucket};
use super::document::{CopyData, KernelData};
use crate::analysis::Filter;
use crate::analysis::launches;
use crate::analysis::range::TimeRange;
use crate::analysis::work::{CALLED_COPIES, CopyOutcome, each_copy};
use crate::names::simplify;
use gpuprobe_cuda::{Direction, Op, nsys};
use gpuprobe_engine::activity::by_work::{ByWork, WorkKind};
use gpuprobe_engine::transfers::Mode;
use gpuprobe_model::activity::{ActivityBatch, ActivityRecord};
use gpuprobe_recording::Database;
use gpuprobe_recording::gpu_rows::{self, RowFilter, ZERO_NS};
use gpuprobe_stacks::symbols;

/// Kernels with a row of their own; the others of a process share one.
const KERNELS: usize = 300;

/// Runs and their nanoseconds, and the same by duration.
#[derive(Default)]
struct KernelBins {
    runs: SumsByBin<2>,
    durations: SumsByBin<1>,
}

/// Copies, their bytes and nanoseconds, and copies by size.
#[derive(Default)]
struct Copied {
    copies: SumsByBin<3>,
    sizes: SumsByBin<1>,
}

type CopyKey = (u32, Direction, &'static str);

/// Collects the work of GPUs.
pub(super) struct WorkByBin<'a> {
    bins: &'a Bins,
    /// Session time of the first memory event.
    first_ns: i64,
    kernels: HashMap<(u32, Option<Arc<str>>), KernelBins>,
    /// Copies as called, or as run if calls were not recorded.
    copies: BTreeMap<(u32, u8, &'static str), (CopyKey, Copied)>,
    takes_gpu_copies: bool,
    /// Kernels are single launches, without durations.
    is_launched: bool,
    busy: BTreeMap<u32, Vec<ByWork>>,
}

/// The work of a run.
#[derive(Default)]
pub(super) struct GpuWork {
    kernels: Vec<(u32, String, KernelBins)>,
    is_launched: bool,
    copies: Vec<(CopyKey, Copied)>,
    /// Nanoseconds by device and bin: kernels, copies, sets, graphs, any.
    pub(super) busy: BTreeMap<u32, Vec<[u64; 5]>>,
}

impl GpuWork {
    /// Reads the work of a file, whose first memory event was at `first_ns` of the session.
    pub(super) fn read(
        database: &Database,
        filter: &Filter,
        bins: &Bins,
        first_ns: i64,
    ) -> Result<Self> {
        let row_filter = RowFilter {
            pid: filter.pid,
            device: filter.device,
        };
        let mut work = WorkByBin {
            bins,
            first_ns,
            kernels: HashMap::new(),
            copies: BTreeMap::new(),
            takes_gpu_copies: !database.has_rows(CALLED_COPIES)?,
            is_launched: false,
            busy: BTreeMap::new(),
        };
        gpu_rows::each(database, row_filter, |batch| work.batch(batch))?;
        work.called_copies(database, row_filter)?;
        if work.kernels.is_empty() && launches::has_times(database)? {
            work.launches(database, row_filter)?;
        }
        Ok(work.finish())
    }

    /// Whether runs or launches of kernels were recorded one by one.
    pub(super) fn has_runs(&self) -> bool {
        !self.kernels.is_empty()
    }

    /// Number of figures.
    pub(super) fn len(&self) -> usize {
        let kernels = self.kernels.iter();
        let kernels = kernels.map(|(_, _, kernel)| kernel.runs.len() + kernel.durations.len());
        let copies = self.copies.iter();
        let copies = copies.map(|(_, copied)| copied.copies.len() + copied.sizes.len());
        kernels.chain(copies).sum()
    }

    /// Merges neighbouring bins.
    pub(super) fn halve(&mut self) {
        for (_, _, kernel) in &mut self.kernels {
            kernel.runs.halve();
            kernel.durations.halve();
        }
        for (_, copied) in &mut self.copies {
            copied.copies.halve();
            copied.sizes.halve();
        }
        for bins in self.busy.values_mut() {
            let merged = bins.chunks(2).map(|pair| {
                let mut sum = [0; 5];
                for bin in pair {
                    sum = std::array::from_fn(|kind| sum[kind] + bin[kind]);
                }
                sum
            });
            *bins = merged.collect();
        }
    }

    /// Kernels by descending time, and copies.
    pub(super) fn into_documents(self) -> (Vec<KernelData>, Vec<CopyData>) {
        let is_timed = !self.is_launched;
        let kernels = self.kernels.into_iter().map(|(pid, name, kernel)| {
            let [runs, total_ns] = kernel.runs.total();
            KernelData {
                pid,
                short: simplify(&name),
                name,
                launches: runs.unsigned_abs(),
                total_ns: is_timed.then_some(total_ns.unsigned_abs()),
                changes: Some(kernel.runs.flat()),
                histogram: is_timed.then(|| kernel.durations.flat_with_keys()),
            }
        });
        let copies = self
            .copies
            .into_iter()
            .map(|((pid, direction, mode), copied)| {
                let [copies, bytes, ns] = copied.copies.total().map(i64::unsigned_abs);
                CopyData {
                    pid,
                    direction: direction.name(),
                    mode,
                    copies,
                    bytes,
                    ns,
                    changes: copied.copies.flat(),
                    histogram: copied.sizes.flat_with_keys(),
                }
            });
        (kernels.collect(), copies.collect())
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl WorkByBin<'_> {
    /// Nanoseconds from the first memory event, of a time of a record.
    fn since_first(&self, record_ns: u64) -> i64 {
        let session_ns = record_ns.cast_signed().saturating_sub_unsigned(ZERO_NS);
        session_ns.saturating_sub(self.first_ns)
    }

    fn batch(&mut self, batch: &ActivityBatch) {
        for activity in &batch.activities {
            let (work, device, start_ns, end_ns) = match &activity.record {
                ActivityRecord::Kernel(r) => (WorkKind::Kernel, r.device, r.start_ns, r.end_ns),
                ActivityRecord::Memcpy(r) => (WorkKind::Copy, r.device, r.start_ns, r.end_ns),
                ActivityRecord::Memset(r) => (WorkKind::Set, r.device, r.start_ns, r.end_ns),
                ActivityRecord::GraphTrace(r) => (WorkKind::Graph, r.device, r.start_ns, r.end_ns),
                _ => continue,
            };
            let (start, end) = (self.since_first(start_ns), self.since_first(end_ns));
            self.busy(work, device, start, end);
            let ns = end_ns.saturating_sub(start_ns);
            match &activity.record {
                ActivityRecord::Kernel(_) => {
                    let bin = self.bins.of(start);
                    let key = (batch.pid, activity.name.clone());
                    let kernel = self.kernels.entry(key).or_default();
                    kernel.runs.add(bin, 0, [1, signed(ns)]);
                    kernel.durations.add(bin, bucket(ns), [1]);
                }
                ActivityRecord::Memcpy(copy) if self.takes_gpu_copies => {
                    let mode = match copy.flags & 1 {
                        1 => Mode::Async,
                        _ => Mode::Sync,
                    };
                    let key = (batch.pid, nsys::direction(copy.copy_kind), mode.name());
                    self.copied(key, start, copy.size_bytes, ns);
                }
                ActivityRecord::Memset(set) if self.takes_gpu_copies => {
                    let key = (batch.pid, Direction::Set, "");
                    self.copied(key, start, set.size_bytes, ns);
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

    fn copied(&mut self, key: CopyKey, time: i64, bytes: u64, ns: u64) {
        let bin = self.bins.of(time);
        let sorted = (key.0, key.1 as u8, key.2);
        let (_, copied) = self
            .copies
            .entry(sorted)
            .or_insert((key, Copied::default()));
        copied.copies.add(bin, 0, [1, signed(bytes), signed(ns)]);
        copied.sizes.add(bin, bucket(bytes), [1]);
    }

    /// Copies as they were called.
    fn called_copies(&mut self, database: &Database, row_filter: RowFilter) -> Result<()> {
        each_copy(database, row_filter, |copy| {
            if copy.outcome == CopyOutcome::Ran {
                let key = (copy.pid, copy.direction, copy.mode.name());
                let time = copy.start_ns.saturating_sub(self.first_ns);
                self.copied(key, time, copy.bytes, copy.ns);
            }
        })
    }

    /// Launches of kernels, one by one, unless some were lost.
    fn launches(&mut self, database: &Database, row_filter: RowFilter) -> Result<()> {
        let mut found = 0;
        launches::each_single(database, row_filter, TimeRange::default(), |one| {
            if one.kernel.op == Op::Launch && !one.is_captured {
                let bin = self.bins.of(one.start_ns.saturating_sub(self.first_ns));
                let key = (one.kernel.pid, Some(one.kernel.name()));
                found += 1;
                self.kernels
                    .entry(key)
                    .or_default()
                    .runs
                    .add(bin, 0, [1, 0]);
            }
        })?;
        self.is_launched = found == launches::count_of_kernels(database, row_filter)?;
        if !self.is_launched {
            self.kernels.clear();
        }
        Ok(())
    }

    fn finish(self) -> GpuWork {
        let mut kernels: Vec<_> = self.kernels.into_iter().collect();
        let rank = |(pid, _): &(u32, Option<Arc<str>>), kernel: &KernelBins| {
            let [runs, ns] = kernel.runs.total();
            (Reverse((ns, runs)), *pid)
        };
        kernels.sort_by(|(a, one), (b, other)| {
            rank(a, one)
                .cmp(&rank(b, other))
                .then_with(|| a.1.cmp(&b.1))
        });
        let rest = kernels.split_off(kernels.len().min(KERNELS));
        let named = kernels.into_iter().map(|((pid, name), kernel)| {
            let name = name.map_or("(no name)".to_owned(), |name| symbols::demangle(&name));
            (pid, name, kernel)
        });
        let mut kernels: Vec<_> = named.collect();
        let mut others: BTreeMap<u32, KernelBins> = BTreeMap::new();
        for ((pid, _), kernel) in rest {
            let other = others.entry(pid).or_default();
            other.runs.merge(&kernel.runs);
            other.durations.merge(&kernel.durations);
        }
        let others = others.into_iter();
        kernels.extend(others.map(|(pid, kernel)| (pid, "(other kernels)".to_owned(), kernel)));
        let busy = self.busy.into_iter().map(|(device, bins)| {
            let spent = bins.iter().map(|bin| {
                let spent = bin.spent();
                let kinds = [spent.kernel_ns, spent.copy_ns, spent.set_ns, spent.graph_ns];
                let [kernels, copies, sets, graphs] = kinds;
                [kernels, copies, sets, graphs, spent.any_ns]
            });
            (device, spent.collect())
        });
        GpuWork {
            kernels,
            is_launched: self.is_launched,
            copies: self.copies.into_values().collect(),
            busy: busy.collect(),
        }
    }
}
