//! Kernels, copies, calls, waits and ranges: of a process, or merged over all processes of a file.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gpuprobe_cuda::Direction;
use gpuprobe_model::link::PcieLink;

use super::{Cell, Column};
use crate::Report;
use crate::activity::{CallSummary, CopySummary, ProcessSummary, RangeSummary, Times, share};
use crate::analysis::ProcessRow;
use crate::bandwidth::{CopyReport, DirectionReport};
use crate::cudatrace::KernelReport;
use crate::micros;

/// Work of one name: a kernel, copies of one kind, calls of a function, waits of a kind, ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work<'a> {
    /// API of a call, domain of a range, direction of copies; else empty.
    pub(crate) group: &'a str,
    /// Name; mode of copies.
    pub(crate) name: &'a str,
    /// Kinds of memory that copies go between, if known.
    pub(crate) memories: Option<(&'a str, &'a str)>,
    pub(crate) count: u64,
    /// Launches captured into a graph, if calls were counted.
    captured: Option<u64>,
    /// Calls that returned an error.
    failed: u64,
    pub(crate) bytes: u64,
    /// Sum of the durations, nanoseconds, if all are known.
    pub(super) ns: Option<u64>,
    /// Durations on the GPU or of calls, if they were measured.
    pub(crate) times: Option<Times>,
    /// Whether the durations are the GPU's.
    by_gpu: bool,
    /// Share of the time of the list, or else of its launches or bytes, 0 to 1.
    pub(super) share: Option<f64>,
    per_second: Option<f64>,
    grid: [u32; 3],
    block: [u32; 3],
    /// Bytes per second of transfer time: mean, of the fastest, and since the last report.
    pub(crate) bytes_per_second: Option<f64>,
    peak: Option<f64>,
    now: Option<f64>,
    /// Bytes per second of wall-clock time.
    wall: Option<f64>,
    /// Share of the link's capacity, and the link.
    link: Option<(f64, PcieLink)>,
}

impl<'a> Work<'a> {
    fn timed(group: &'a str, name: &'a str, times: &Times, share: f64) -> Self {
        Self {
            group,
            name,
            count: times.count,
            ns: Some(times.total_ns),
            times: Some(times.clone()),
            by_gpu: true,
            share: Some(share),
            ..Self::default()
        }
    }

    /// Kernels that ran on the GPU.
    pub(crate) fn kernels(process: &'a ProcessSummary) -> impl Iterator<Item = Self> {
        process.kernels.iter().map(|kernel| Self {
            per_second: Some(kernel.per_second),
            grid: kernel.grid,
            block: kernel.block,
            ..Self::timed("", &kernel.name, &kernel.times, kernel.share)
        })
    }

    /// A kernel as it was launched, of so many launches.
    pub(crate) fn launched(kernel: &'a KernelReport, launches: u64) -> Self {
        Self {
            name: &kernel.name,
            count: kernel.launches,
            captured: Some(kernel.captured_launches),
            share: Some(share(kernel.launches, launches)),
            per_second: Some(kernel.per_second),
            grid: kernel.grid,
            block: kernel.block,
            ..Self::default()
        }
    }

    /// Copies and memory sets that ran on the GPU.
    pub(crate) fn copies(
        process: &'a ProcessSummary,
        link: Option<PcieLink>,
    ) -> impl Iterator<Item = Self> {
        process.copies.iter().map(move |copy: &CopySummary| Self {
            memories: copy.source.zip(copy.destination),
            bytes: copy.bytes,
            bytes_per_second: copy.bytes_per_second,
            peak: copy.peak_bytes_per_second,
            link: copy.link_utilisation.zip(link),
            share: None,
            ..Self::timed(copy.direction, copy.mode.unwrap_or(""), &copy.times, 0.0)
        })
    }

    /// Copies as they were called; with the GPU's speed, if it was timed.
    pub(crate) fn called(copies: &'a DirectionReport, link: Option<PcieLink>) -> Self {
        let gpu = copies
            .gpu
            .as_ref()
            .filter(|gpu| gpu.bytes_per_second.is_some());
        Self {
            group: copies.direction,
            name: copies.mode,
            count: copies.calls,
            bytes: copies.bytes,
            ns: copies.seconds.map(|seconds| (seconds * 1e9).round() as u64),
            by_gpu: gpu.is_some(),
            bytes_per_second: gpu
                .and_then(|gpu| gpu.bytes_per_second)
                .or(copies.bytes_per_second),
            peak: gpu
                .map(|gpu| gpu.peak_bytes_per_second)
                .or(copies.peak_bytes_per_second),
            now: copies.now_bytes_per_second,
            wall: Some(copies.wall_bytes_per_second),
            link: copies.link_utilisation.zip(link),
            ..Self::default()
        }
    }

    /// Calls of the driver and the runtime.
    pub(crate) fn calls(process: &'a ProcessSummary) -> impl Iterator<Item = Self> {
        process.calls.iter().map(|call: &CallSummary| Self {
            failed: call.failed,
            ..Self::timed(call.domain, &call.name, &call.times, call.share)
        })
    }

    /// Waits for the GPU.
    pub(crate) fn waits(process: &'a ProcessSummary) -> impl Iterator<Item = Self> {
        let waits = process.synchronizations.iter();
        waits.map(|wait| Self::timed("", wait.kind, &wait.times, wait.share))
    }

    /// Overhead of tracing.
    pub(crate) fn overhead(process: &'a ProcessSummary) -> impl Iterator<Item = Self> {
        let all = process.overhead.iter();
        all.map(|cost| Self::timed("", cost.kind, &cost.times, cost.share))
    }

    /// NVTX ranges.
    pub(crate) fn ranges(process: &'a ProcessSummary) -> impl Iterator<Item = Self> {
        process.ranges.iter().map(|range: &RangeSummary| {
            let domain = range.domain.as_deref().unwrap_or("");
            Self::timed(domain, &range.name, &range.times, range.share)
        })
    }

    pub(crate) fn is_set(&self) -> bool {
        self.group == Direction::Set.name()
    }

    fn total_ns(&self) -> Option<u64> {
        self.times.as_ref().map(|times| times.total_ns)
    }

    /// Merges work of the same name, with shares of all of it. What is of a moment or a process goes.
    fn merged(all: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut sums: BTreeMap<_, Self> = BTreeMap::new();
        for one in all {
            match sums.get_mut(&(one.group, one.name, one.memories)) {
                Some(sum) => sum.merge(&one),
                None => {
                    sums.insert((one.group, one.name, one.memories), one);
                }
            }
        }
        let part = |one: &Self| match (one.total_ns(), one.captured) {
            (Some(ns), _) => ns,
            (None, Some(_)) => one.count,
            (None, None) => one.bytes,
        };
        let whole = sums.values().map(part).fold(0, u64::saturating_add);
        let finish = |one: Self| Self {
            share: Some(share(part(&one), whole)),
            bytes_per_second: one
                .ns
                .filter(|&ns| ns > 0)
                .map(|ns| one.bytes as f64 * 1e9 / ns as f64),
            per_second: None,
            now: None,
            wall: None,
            ..one
        };
        sums.into_values().map(finish).collect()
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.captured = self.captured.zip(other.captured).map(|(a, b)| a + b);
        self.failed += other.failed;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.ns = self.ns.zip(other.ns).map(|(a, b)| a.saturating_add(b));
        self.peak = self.peak.into_iter().chain(other.peak).reduce(f64::max);
        if let (Some(times), Some(more)) = (&mut self.times, &other.times) {
            times.merge(more);
        }
    }

    /// Kernels of a file by descending time, then launches: those that ran on the GPU, or else those launched.
    pub(crate) fn kernels_of_file(report: &'a Report) -> Vec<Self> {
        let mut kernels = Self::merged(processes(report).flat_map(Self::kernels));
        if kernels.is_empty() {
            let launched = report.cudatrace.iter().flat_map(|trace| &trace.kernels);
            kernels = Self::merged(launched.map(|kernel| Self::launched(kernel, 0)));
        }
        kernels.sort_by_key(|kernel| Reverse((kernel.total_ns(), kernel.count)));
        kernels
    }

    /// Copies of a file: those that ran on the GPU, or else those called.
    pub(crate) fn copies_of_file(report: &'a Report) -> Vec<Self> {
        let ran = Self::merged(processes(report).flat_map(|one| Self::copies(one, None)));
        if !ran.is_empty() {
            return ran;
        }
        let called = report.bandwidth_util.iter().flat_map(|b| &b.directions);
        Self::merged(called.map(|copies| Self::called(copies, None)))
    }

    /// Calls, waits or ranges of a file by descending time.
    pub(crate) fn timed_of_file<I: Iterator<Item = Self>>(
        report: &'a Report,
        list: fn(&'a ProcessSummary) -> I,
    ) -> Vec<Self> {
        let mut all = Self::merged(processes(report).flat_map(list));
        all.sort_by_key(|one| Reverse(one.total_ns()));
        all
    }
}

/// Processes of a report with timed GPU work, calls or ranges.
pub(crate) fn processes(report: &Report) -> impl Iterator<Item = &ProcessSummary> {
    let activity = report.activity.iter();
    activity.flat_map(|activity| &activity.processes)
}

/// A duration, where it was measured.
fn times(work: &Work<'_>, cell: fn(&Times) -> Cell<'static>) -> Cell<'static> {
    work.times.as_ref().map_or(Cell::None, cell)
}

fn share_if(work: &Work<'_>, is_timed: bool) -> Cell<'static> {
    let share = work.share.filter(|_| work.times.is_some() == is_timed);
    Cell::of(share, Cell::Share)
}

impl<'a> Work<'a> {
    const TOTAL: Column<Self> = Column::text("TOTAL", 2, |w| Cell::of(w.ns, Cell::Ns));
    const MEAN: Column<Self> = Column::both("mean_ns", "MEAN", 3, |w| {
        times(w, |t| Cell::MeanNs(t.mean_ns))
    });
    const MEDIAN: Column<Self> = Column::both("median_ns", "MEDIAN", 7, |w| {
        times(w, |t| Cell::Ns(t.median_ns))
    });
    const P99: Column<Self> =
        Column::both("p99_ns", "P99", 6, |w| times(w, |t| Cell::Ns(t.p99_ns)));
    const MIN: Column<Self> =
        Column::both("min_ns", "MIN", 9, |w| times(w, |t| Cell::Ns(t.min_ns)));
    const MAX: Column<Self> =
        Column::both("max_ns", "MAX", 8, |w| times(w, |t| Cell::Ns(t.max_ns)));
    const SHARE: Column<Self> = Column::value("share", |w| Cell::of(w.share, Cell::Share));

    pub(crate) const KERNELS: &'a [Column<Self>] = &[
        Column::<Self>::both("name", "KERNEL", 0, |w| Cell::Kernel(w.name.into())).min_width(30),
        Column::text("RUNS", 0, |w| times(w, |t| Cell::Count(t.count))),
        Column::text("LAUNCHES", 0, |w| match w.times {
            Some(_) => Cell::None,
            None => Cell::Count(w.count),
        }),
        Column::text("% KERNEL TIME", 1, |w| share_if(w, true)),
        Column::text("%LAUNCHES", 1, |w| share_if(w, false)),
        Column::text("PER SEC", 4, |w| Cell::of(w.per_second, Cell::PerSecond)),
        Column::value("launches", |w| Cell::Count(w.count)),
        Column::both("captured", "CAPTURED", 1, |w| {
            Cell::of(w.captured, Cell::Rare)
        }),
        Self::TOTAL.named("gpu_ns"),
        Self::MEAN,
        Self::MIN.named("shortest_ns"),
        Self::MAX.named("longest_ns"),
        Self::MEDIAN,
        Self::P99,
        Self::SHARE,
        Column::text("GRID", 7, |w| Cell::Shape(w.grid)),
        Column::text("BLOCK", 7, |w| Cell::Shape(w.block)),
        Column::text("", 10, |w| Cell::of(w.share, Cell::Bar)),
    ];

    pub(crate) const COPIES: &'a [Column<Self>] = &[
        Column::both("direction", "DIRECTION", 0, |w| Cell::text(w.group)),
        Column::both("mode", "MODE", 0, |w| Cell::text(w.name)),
        Column::text("MEMORY", 1, |w| match w.memories {
            None | Some(("unknown", "unknown")) => Cell::None,
            Some((source, destination)) => Cell::text(format!("{source} to {destination}")),
        }),
        Column::both("count", "COPIES", 0, |w| Cell::Count(w.count)),
        Column::both("bytes", "BYTES", 0, |w| Cell::Bytes(w.bytes)),
        Column::value("ns", |w| Cell::of(w.ns, Cell::Ns)),
        Column::both("bytes_per_second", "GB/S", 0, |w| {
            Cell::of(w.bytes_per_second, Cell::BytesPerSecond)
        }),
        Column::both("peak_bytes_per_second", "PEAK", 0, |w| {
            Cell::of(w.peak, Cell::BytesPerSecond)
        }),
        Column::text("NOW", 0, |w| Cell::of(w.now, Cell::BytesPerSecond)),
        Column::text("% OF LINK", 0, |w| {
            Cell::of(w.link, |(used, _)| Cell::Share(used))
        }),
        Column::text("LINK", 4, |w| {
            Cell::of(w.link, |(_, link)| Cell::text(link.to_string()))
        }),
        Column::text("% COPY TIME", 2, |w| share_if(w, true)),
        Column::text("% OF BYTES", 2, |w| share_if(w, false)),
        Column::value("source", |w| {
            Cell::of(w.memories, |(from, _)| Cell::text(from))
        }),
        Column::value("destination", |w| {
            Cell::of(w.memories, |(_, to)| Cell::text(to))
        }),
        Column::both("timed_by", "TIMED BY", 3, |w| match w.ns {
            _ if w.by_gpu => Cell::text("gpu"),
            Some(_) => Cell::text("call"),
            None => Cell::None,
        }),
        Self::TOTAL,
        Self::MEAN,
        Self::MEDIAN,
        Self::P99,
        Self::MIN,
        Self::MAX,
        Self::SHARE,
        Column::text("GB/S OF WALL TIME", 4, |w| {
            Cell::of(w.wall, Cell::BytesPerSecond)
        }),
    ];

    /// Columns of calls, waits or ranges, whose name has this column.
    const fn timed_columns(
        name: &'static str,
        [title, count, share]: [&'static str; 3],
    ) -> [Column<Self>; 13] {
        [
            Column::both("domain", "DOMAIN", 4, |w| Cell::text(w.group)),
            Column::<Self>::both(name, title, 0, |w| Cell::Function(w.name.into())).min_width(24),
            Column::both("count", count, 0, |w| Cell::Count(w.count)),
            Column::text(share, 1, |w| Cell::of(w.share, Cell::Share)),
            Self::TOTAL.named("total_ns"),
            Self::MEAN,
            Self::MEDIAN,
            Self::P99,
            Self::MIN,
            Self::MAX,
            Self::SHARE,
            Column::both("failed", "FAILED", 1, |w| Cell::Rare(w.failed)),
            Column::text("", 10, |w| Cell::of(w.share, Cell::Bar)),
        ]
    }

    pub(crate) const CALLS: &'a [Column<Self>] =
        &Self::timed_columns("function", ["FUNCTION", "CALLS", "% OF CALL TIME"]);
    pub(crate) const WAITS: &'a [Column<Self>] =
        &Self::timed_columns("kind", ["WAITS FOR", "WAITS", "% OF WAIT TIME"]);
    pub(crate) const RANGES: &'a [Column<Self>] =
        &Self::timed_columns("range", ["NVTX RANGE", "RANGES", "% OF RANGE TIME"]);
    pub(crate) const OVERHEAD: &'a [Column<Self>] =
        &Self::timed_columns("kind", ["COST OF TRACING", "TIMES", "% OF OVERHEAD"]);
}

/// Processes of a file.
pub(crate) const PROCESSES: &[Column<ProcessRow>] = &[
    Column::both("pid", "PID", 0, |p| Cell::Count(p.pid.into())),
    Column::<ProcessRow>::both("comm", "PROCESS", 0, |p| {
        Cell::of(p.comm.as_deref(), Cell::text)
    })
    .min_width(12),
    Column::both("uid", "UID", 2, |p| {
        Cell::of(p.uid, |uid| Cell::Count(uid.into()))
    }),
    Column::both("run_ns", "RUN TIME", 1, |p| Cell::Ns(p.run_ns)),
    Column::both("peak_bytes", "PEAK", 0, |p| Cell::Bytes(p.peak_bytes)),
    Column::both("never_freed_bytes", "NEVER FREED", 0, |p| {
        Cell::Bytes(p.never_freed_bytes)
    }),
    Column::value("never_freed_allocations", |p| {
        Cell::Count(p.never_freed_allocations)
    }),
    Column::both("launches", "LAUNCHES", 0, |p| Cell::Count(p.launches)),
    Column::both("graph_launches", "GRAPHS", 3, |p| {
        Cell::Rare(p.graph_launches)
    }),
    Column::both("kernel_ns", "KERNEL TIME", 2, |p| {
        Cell::of(p.kernel_ns, Cell::Ns)
    }),
    Column::both("copies", "COPIES", 0, |p| Cell::Count(p.copies)),
    Column::both("copied_bytes", "COPIED", 2, |p| Cell::Bytes(p.copied_bytes)),
];

/// Launched kernels of a live run.
pub(crate) const LAUNCHES: &[Column<KernelReport>] = &[
    Column::value("pid", |k| Cell::Count(k.pid.into())),
    Column::value("uid", |k| Cell::of(k.uid, |uid| Cell::Count(uid.into()))),
    Column::value("comm", |k| Cell::of(k.comm.as_deref(), Cell::text)),
    Column::value("exited", |k| Cell::Words(k.exited.to_string())),
    Column::value("name", |k| Cell::text(&*k.name)),
    Column::value("mangled", |k| Cell::of(k.mangled.as_deref(), Cell::text)),
    Column::value("handle", |k| Cell::Address(k.handle)),
    Column::value("launches", |k| Cell::Count(k.launches)),
    Column::value("captured_launches", |k| Cell::Count(k.captured_launches)),
    Column::value("per_second", |k| Cell::PerSecond(k.per_second)),
    Column::value("grid", |k| Cell::Shape(k.grid)),
    Column::value("block", |k| Cell::Shape(k.block)),
    Column::value("api", |k| Cell::text(k.api)),
];

/// Copies of a live run by direction and mode.
pub(crate) const DIRECTIONS: &[Column<DirectionReport>] = &[
    Column::value("pid", |d| Cell::Count(d.pid.into())),
    Column::value("direction", |d| Cell::text(d.direction)),
    Column::value("mode", |d| Cell::text(d.mode)),
    Column::value("calls", |d| Cell::Count(d.calls)),
    Column::value("bytes", |d| Cell::Bytes(d.bytes)),
    Column::value("seconds", |d| Cell::of(d.seconds, Cell::Number)),
    Column::value("bytes_per_second", |d| {
        Cell::of(d.bytes_per_second, Cell::Number)
    }),
    Column::value("peak_bytes_per_second", |d| {
        Cell::of(d.peak_bytes_per_second, Cell::Number)
    }),
    Column::value("wall_bytes_per_second", |d| {
        Cell::Number(d.wall_bytes_per_second)
    }),
];

/// Single copies of a live run.
pub(crate) const SINGLE_COPIES: &[Column<CopyReport>] = &[
    Column::value("time", |c| Cell::text(micros(c.time.as_ref()))),
    Column::value("pid", |c| Cell::Count(c.pid.into())),
    Column::value("tid", |c| Cell::Count(c.tid.into())),
    Column::value("api", |c| Cell::text(c.api)),
    Column::value("direction", |c| Cell::text(c.direction)),
    Column::value("mode", |c| Cell::text(c.mode)),
    Column::value("bytes", |c| Cell::Bytes(c.bytes)),
    Column::value("seconds", |c| Cell::Number(c.seconds)),
    Column::value("bytes_per_second", |c| {
        Cell::of(c.bytes_per_second, Cell::Number)
    }),
];
