//! Kernels, copies, calls, waits and ranges, and processes of a file.

use super::{Cell, Column, both, bytes, count, cut, known, ns, rare, shown, some, text, value};
use gpuprobe_report::activity::Times;
use gpuprobe_report::analysis::ProcessRow;
use gpuprobe_report::work::{Work, WorkList};

/// A duration, where it was measured.
fn times(work: &Work, cell: fn(&Times) -> Cell<'static>) -> Cell<'static> {
    work.times.as_ref().map_or(Cell::None, cell)
}

fn share_if(work: &Work, is_timed: bool) -> Cell<'static> {
    let share = work.share.filter(|_| work.times.is_some() == is_timed);
    some(share, Cell::Share)
}

const fn total(name: &'static str) -> Column<Work> {
    both(name, "TOTAL", 2, |w| ns(w.ns))
}

const fn min(name: &'static str) -> Column<Work> {
    both(name, "MIN", 9, |w| times(w, |t| ns(t.min_ns)))
}

const fn max(name: &'static str) -> Column<Work> {
    both(name, "MAX", 8, |w| times(w, |t| ns(t.max_ns)))
}

const MEAN: Column<Work> = both("mean_ns", "MEAN", 3, |w| {
    times(w, |t| Cell::MeanNs(t.mean_ns))
});
const MEDIAN: Column<Work> = both("median_ns", "MEDIAN", 7, |w| times(w, |t| ns(t.median_ns)));
const P99: Column<Work> = both("p99_ns", "P99", 6, |w| times(w, |t| ns(t.p99_ns)));
const SHARE: Column<Work> = value("share", |w| some(w.share, Cell::Share));
const BAR: Column<Work> = shown("", 10, |w| some(w.share, Cell::Bar));

pub(crate) const KERNELS: &[Column<Work>] = &[
    cut(30, both("name", "KERNEL", 0, |w| Cell::Kernel(&w.name))),
    shown("RUNS", 0, |w| times(w, |t| count(t.count))),
    shown("LAUNCHES", 0, |w| {
        count(Some(w.count).filter(|_| w.times.is_none()))
    }),
    shown("% KERNEL TIME", 1, |w| share_if(w, true)),
    shown("%LAUNCHES", 1, |w| share_if(w, false)),
    shown("PER SEC", 4, |w| some(w.per_second, Cell::PerSecond)),
    value("launches", |w| count(w.count)),
    both("captured", "CAPTURED", 1, |w| rare(w.captured)),
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
    shown("MEMORY", 1, |w| match w.memories {
        None | Some(("unknown", "unknown")) => Cell::None,
        Some((source, destination)) => text(format!("{source} to {destination}")),
    }),
    both("count", "COPIES", 0, |w| count(w.count)),
    both("bytes", "BYTES", 0, |w| bytes(w.bytes)),
    value("ns", |w| ns(w.ns)),
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
    shown("% COPY TIME", 2, |w| share_if(w, true)),
    shown("% OF BYTES", 2, |w| share_if(w, false)),
    value("source", |w| some(w.memories, |(from, _)| text(from))),
    value("destination", |w| some(w.memories, |(_, to)| text(to))),
    both("timed_by", "TIMED BY", 3, |w| match w.ns {
        _ if w.by_gpu => text("gpu"),
        Some(_) => text("call"),
        None => Cell::None,
    }),
    shown("TOTAL", 2, |w| ns(w.ns)),
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

/// Columns of calls, waits or ranges, whose name has this column.
const fn timed(name: &'static str, titles: [&'static str; 3]) -> [Column<Work>; 13] {
    [
        both("domain", "DOMAIN", 4, |w| text(&w.group)),
        cut(24, both(name, titles[0], 0, |w| Cell::Function(&w.name))),
        both("count", titles[1], 0, |w| count(w.count)),
        shown(titles[2], 1, |w| some(w.share, Cell::Share)),
        total("total_ns"),
        MEAN,
        MEDIAN,
        P99,
        min("min_ns"),
        max("max_ns"),
        SHARE,
        both("failed", "FAILED", 1, |w| rare(w.failed)),
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
    both("pid", "PID", 0, |p| count(p.pid)),
    cut(12, both("comm", "PROCESS", 0, |p| known(&p.comm))),
    both("uid", "UID", 2, |p| count(p.uid)),
    both("run_ns", "RUN TIME", 1, |p| ns(p.run_ns)),
    both("peak_bytes", "PEAK", 0, |p| bytes(p.peak_bytes)),
    both("never_freed_bytes", "NEVER FREED", 0, |p| {
        bytes(p.never_freed_bytes)
    }),
    value("never_freed_allocations", |p| {
        count(p.never_freed_allocations)
    }),
    both("launches", "LAUNCHES", 0, |p| count(p.launches)),
    both("graph_launches", "GRAPHS", 3, |p| rare(p.graph_launches)),
    both("kernel_ns", "KERNEL TIME", 2, |p| ns(p.kernel_ns)),
    both("copies", "COPIES", 0, |p| count(p.copies)),
    both("copied_bytes", "COPIED", 2, |p| bytes(p.copied_bytes)),
];
