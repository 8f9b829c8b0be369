//! Results as tables of separated values.

use super::merged::{Copies, MergedCalls, MergedKernel};
use crate::Report;
use crate::activity::Times;

/// Column names, and rows with one cell per column.
pub(super) struct CellTable {
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

pub(super) fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Columns of [`Times`] in all tables, besides number and sum.
const TIMES: [&str; 5] = ["mean_ns", "median_ns", "p99_ns", "min_ns", "max_ns"];

/// The cells for [`TIMES`].
fn times(times: Option<&Times>) -> [String; 5] {
    [
        optional(times.map(|times| format!("{:.0}", times.mean_ns))),
        optional(times.map(|times| times.median_ns)),
        optional(times.map(|times| times.p99_ns)),
        optional(times.map(|times| times.min_ns)),
        optional(times.map(|times| times.max_ns)),
    ]
}

/// Kernels: runs on the GPU if these were timed, else launches.
pub(super) fn kernels(report: &Report) -> CellTable {
    let columns = [
        "name",
        "launches",
        "captured",
        "gpu_ns",
        "mean_ns",
        "shortest_ns",
        "longest_ns",
        "median_ns",
        "p99_ns",
        "share",
    ];
    let rows = MergedKernel::all(report).into_iter().map(|kernel| {
        let total_ns = kernel.times.as_ref().map(|times| times.total_ns);
        let [mean, median, p99, min, max] = times(kernel.times.as_ref());
        vec![
            kernel.name.to_owned(),
            kernel.launches.to_string(),
            optional(kernel.captured),
            optional(total_ns),
            mean,
            min,
            max,
            median,
            p99,
            kernel.share.to_string(),
        ]
    });
    CellTable {
        columns: columns.into(),
        rows: rows.collect(),
    }
}

/// Copies: on the GPU if these were timed, else calls.
pub(super) fn copies(report: &Report) -> CellTable {
    let columns = [
        "direction",
        "mode",
        "count",
        "bytes",
        "ns",
        "bytes_per_second",
        "peak_bytes_per_second",
        "source",
        "destination",
        "timed_by",
    ];
    let rows = Copies::all(report).into_iter().map(|copies| {
        let speed = |speed: Option<f64>| optional(speed.map(|speed| format!("{speed:.0}")));
        let timed_by = match (&copies.times, copies.ns) {
            (Some(_), _) => "gpu",
            (None, Some(_)) => "call",
            (None, None) => "",
        };
        let mut row = vec![
            copies.which.direction.to_owned(),
            optional(copies.which.mode),
            copies.count.to_string(),
            copies.bytes.to_string(),
            optional(copies.ns),
            speed(copies.bytes_per_second()),
            speed(copies.peak),
            optional(copies.which.source),
            optional(copies.which.destination),
            timed_by.to_owned(),
        ];
        row.extend(times(copies.times.as_ref()));
        row.push(copies.share.to_string());
        row
    });
    CellTable {
        columns: columns.into_iter().chain(TIMES).chain(["share"]).collect(),
        rows: rows.collect(),
    }
}

/// Calls, waits or ranges; `name` is the name of their column.
pub(super) fn named(all: Vec<MergedCalls<'_>>, name: &'static str) -> CellTable {
    let rows = all.into_iter().map(|one| {
        let mut row = vec![
            one.domain.to_owned(),
            one.name.to_owned(),
            one.times.count.to_string(),
            one.times.total_ns.to_string(),
        ];
        row.extend(times(Some(&one.times)));
        row.extend([one.share.to_string(), one.failed.to_string()]);
        row
    });
    let first = ["domain", name, "count", "total_ns"];
    let columns = first.into_iter().chain(TIMES).chain(["share", "failed"]);
    CellTable {
        columns: columns.collect(),
        rows: rows.collect(),
    }
}

pub(super) fn processes(report: &Report) -> CellTable {
    let columns = [
        "pid",
        "comm",
        "uid",
        "run_ns",
        "peak_bytes",
        "never_freed_bytes",
        "never_freed_allocations",
        "launches",
        "graph_launches",
        "kernel_ns",
        "copies",
        "copied_bytes",
    ];
    let about = report.about.iter();
    let all = about.flat_map(|about| about.processes.iter().flatten());
    let rows = all.map(|process| {
        vec![
            process.pid.to_string(),
            optional(process.comm.as_ref()),
            optional(process.uid),
            process.run_ns.to_string(),
            process.peak_bytes.to_string(),
            process.never_freed_bytes.to_string(),
            process.never_freed_allocations.to_string(),
            process.launches.to_string(),
            process.graph_launches.to_string(),
            optional(process.kernel_ns),
            process.copies.to_string(),
            process.copied_bytes.to_string(),
        ]
    });
    CellTable {
        columns: columns.into(),
        rows: rows.collect(),
    }
}
