//! Kernels, copies, calls, waits and ranges, and processes of a file.

use super::{Cell, Column, both, count, known, shown, some, text, value};
use gpuprobe_report::about::ProcessRow;
use gpuprobe_report::activity::Times;
use gpuprobe_report::copy_sites::CopySiteReport;
use gpuprobe_report::work::{Work, WorkList};

/// A duration, where it was measured.
pub(super) fn times(work: &Work, cell: fn(&Times) -> Cell<'static>) -> Cell<'static> {
    work.times.as_ref().map_or(Cell::None, cell)
}

const fn total(name: &'static str) -> Column<Work> {
    both(name, "TOTAL", 2, |w| some(w.ns, Cell::Ns))
}

const fn min(name: &'static str) -> Column<Work> {
    both(name, "MIN", 9, |w| times(w, |t| Cell::Ns(t.min_ns)))
}

const fn max(name: &'static str) -> Column<Work> {
    both(name, "MAX", 8, |w| times(w, |t| Cell::Ns(t.max_ns)))
}

const MEAN: Column<Work> = both("mean_ns", "MEAN", 3, |w| {
    times(w, |t| Cell::Ns(t.mean_ns.round_ties_even() as u64))
});
const MEDIAN: Column<Work> = both("median_ns", "MEDIAN", 7, |w| {
    times(w, |t| Cell::Ns(t.median_ns))
});
const P99: Column<Work> = both("p99_ns", "P99", 6, |w| times(w, |t| Cell::Ns(t.p99_ns)));
const SHARE: Column<Work> = value("share", |w| some(w.share, Cell::Share));
const BAR: Column<Work> = shown("", 10, |w| some(w.share, Cell::Bar));

pub(crate) const KERNELS: &[Column<Work>] = &[
    both("name", "KERNEL", 0, |w: &Work| Cell::Kernel(&w.name)).cut(30),
    shown("RUNS", 0, |w| times(w, |t| Cell::Count(t.count))),
    shown("LAUNCHES", 0, |w| {
        count(Some(w.count).filter(|_| w.times.is_none()))
    }),
    // Of the time, where that is known, else of the launches.
    shown("%", 1, |w| some(w.share, Cell::Share)),
    shown("PER SEC", 4, |w| some(w.per_second, Cell::PerSecond)),
    value("launches", |w| Cell::Count(w.count)),
    both("captured", "CAPTURED", 1, |w| some(w.captured, Cell::Rare)),
    total("gpu_ns"),
    MEAN,
    min("shortest_ns"),
    max("longest_ns"),
    MEDIAN,
    P99,
    SHARE,
    both("grid", "GRID", 7, |w| Cell::Shape(w.grid)),
    both("block", "BLOCK", 7, |w| Cell::Shape(w.block)),
    BAR,
];

pub(crate) const COPIES: &[Column<Work>] = &[
    both("direction", "DIRECTION", 0, |w| text(&w.group)),
    both("mode", "MODE", 0, |w| text(&w.name)),
    both("count", "COPIES", 0, |w| Cell::Count(w.count)),
    both("bytes", "BYTES", 0, |w| Cell::Bytes(w.bytes)),
    value("ns", |w| some(w.ns, Cell::Ns)),
    both("bytes_per_second", "GB/S", 0, |w| {
        some(w.bytes_per_second, Cell::BytesPerSecond)
    }),
    both("peak_bytes_per_second", "PEAK", 0, |w| {
        some(w.peak, Cell::BytesPerSecond)
    }),
    shown("NOW", 0, |w| some(w.now, Cell::BytesPerSecond)),
    shown("% OF LINK", 0, |w| {
        some(w.link, |(used, _)| Cell::Share(used))
    }),
    shown("LINK", 4, |w| {
        some(w.link, |(_, link)| text(link.to_string()))
    }),
    // Of the time, where that is known, else of the bytes.
    shown("%", 2, |w| some(w.share, Cell::Share)),
    both("source", "FROM", 1, |w| {
        some(w.memories, |(from, _)| text(from))
    }),
    both("destination", "TO", 1, |w| {
        some(w.memories, |(_, to)| text(to))
    }),
    both("timed_by", "TIMED BY", 3, |w| match w.ns {
        _ if w.by_gpu => text("gpu"),
        Some(_) => text("call"),
        None => Cell::None,
    }),
    shown("TOTAL", 2, |w| some(w.ns, Cell::Ns)),
    MEAN,
    MEDIAN,
    P99,
    min("min_ns"),
    max("max_ns"),
    SHARE,
    shown("GB/S OF WALL TIME", 4, |w| {
        some(w.wall, Cell::BytesPerSecond)
    }),
];

/// Copies by call site.
pub(crate) const COPY_SITES: &[Column<CopySiteReport>] = &[
    value("pid", |s| Cell::Count(s.pid.into())),
    both("calls", "COPIES", 0, |s| Cell::Count(s.calls)),
    both("bytes", "BYTES", 0, |s| Cell::Bytes(s.bytes)),
    both("direction", "DIRECTION", 0, |s| text(s.direction)),
    both("host_memory", "HOST MEMORY", 2, |s| {
        some(s.host_memory, text)
    }),
    both("waits", "WAIT", 1, |s| Cell::Rare(s.waits)),
    both("ns", "TIME", 3, |s| Cell::Ns(s.ns)),
    value("api", |s| text(&*s.api)),
    both("where", "WHERE", 0, |s: &CopySiteReport| {
        Cell::Path(&s.label)
    })
    .cut(20),
    value("advice", |s| some(s.advice, text)),
];

/// Columns of calls, waits or ranges, whose name has this column.
const fn timed(name: &'static str, titles: [&'static str; 3]) -> [Column<Work>; 13] {
    [
        both("domain", "DOMAIN", 4, |w| text(&w.group)),
        both(name, titles[0], 0, |w: &Work| Cell::Function(&w.name)).cut(24),
        both("count", titles[1], 0, |w| Cell::Count(w.count)),
        shown(titles[2], 1, |w| some(w.share, Cell::Share)),
        total("total_ns"),
        MEAN,
        MEDIAN,
        P99,
        min("min_ns"),
        max("max_ns"),
        SHARE,
        both("failed", "FAILED", 1, |w| Cell::Rare(w.failed)),
        BAR,
    ]
}

const CALLS: &[Column<Work>] = &timed("function", ["FUNCTION", "CALLS", "% OF CALL TIME"]);
const WAITS: &[Column<Work>] = &timed("kind", ["WAITS FOR", "WAITS", "% OF WAIT TIME"]);
const RANGES: &[Column<Work>] = &timed("range", ["NVTX RANGE", "RANGES", "% OF RANGE TIME"]);
const OVERHEAD: &[Column<Work>] = &timed("kind", ["COST OF TRACING", "TIMES", "% OF OVERHEAD"]);

/// The columns of a list.
pub(crate) fn columns(list: WorkList) -> &'static [Column<Work>] {
    match list {
        WorkList::Kernels => KERNELS,
        WorkList::Copies => COPIES,
        WorkList::Calls => CALLS,
        WorkList::Waits => WAITS,
        WorkList::Ranges => RANGES,
        WorkList::Overhead => OVERHEAD,
    }
}

/// Processes of a file.
pub(crate) const PROCESSES: &[Column<ProcessRow>] = &[
    both("pid", "PID", 0, |p| Cell::Count(p.pid.into())),
    both("comm", "PROCESS", 0, |p: &ProcessRow| known(&p.comm)).cut(12),
    both("uid", "UID", 2, |p| count(p.uid)),
    both("run_ns", "RUN TIME", 1, |p| Cell::Ns(p.run_ns)),
    both("peak_bytes", "PEAK", 0, |p| some(p.peak_bytes, Cell::Bytes)),
    both("never_freed_bytes", "NEVER FREED", 0, |p| {
        some(p.never_freed_bytes, Cell::Bytes)
    }),
    value("never_freed_allocations", |p| {
        some(p.never_freed_allocations, Cell::Count)
    }),
    both("launches", "LAUNCHES", 0, |p| some(p.launches, Cell::Count)),
    both("graph_launches", "GRAPHS", 3, |p| {
        some(p.graph_launches, Cell::Rare)
    }),
    both("kernel_ns", "KERNEL TIME", 2, |p| {
        some(p.kernel_ns, Cell::Ns)
    }),
    both("copies", "COPIES", 0, |p| some(p.copies, Cell::Count)),
    both("copied_bytes", "COPIED", 2, |p| {
        some(p.copied_bytes, Cell::Bytes)
    }),
];
