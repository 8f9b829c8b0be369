//! Kernels and copies of a process.

use std::borrow::Cow;

use gpuprobe_report::Report;
use gpuprobe_report::bandwidth::DirectionReport;
use gpuprobe_report::words::plural;

use super::cell::GridCell;
use super::grid::{Grid, GridColumn, Row};

const KERNELS: &[GridColumn] = &[
    GridColumn::number("LAUNCHES", 10, 0),
    GridColumn::number("PER S", 8, 0),
    GridColumn::number("%", 5, 60),
    GridColumn::name("GRID", 16, 110),
    GridColumn::name("BLOCK", 12, 110),
    GridColumn::name("LAUNCHED WITH", 18, 140),
    GridColumn::name("KERNEL", 0, 0),
];
const COPIES: &[GridColumn] = &[
    GridColumn::name("DIRECTION", 9, 0),
    GridColumn::name("MODE", 5, 0),
    GridColumn::number("COPIES", 9, 0),
    GridColumn::number("BYTES", 11, 0),
    GridColumn::number("GB/S NOW", 8, 60),
    GridColumn::number("GB/S IN CALLS", 13, 76),
    GridColumn::number("GB/S FASTEST", 12, 76),
    GridColumn::number("% OF LINK", 9, 90),
];

/// The kernels of process `pid`.
pub(crate) fn kernels(report: &Report, pid: u32) -> Grid<'_> {
    let trace = report.cudatrace.as_ref();
    let launchers = trace.into_iter().flat_map(|trace| &trace.processes);
    let launcher = launchers.into_iter().find(|launcher| launcher.pid == pid);
    let all = launcher.map_or(0, |launcher| launcher.launches);
    let kernels = trace.into_iter().flat_map(|trace| &trace.kernels);
    let rows = kernels.filter(|kernel| kernel.pid == pid).zip(0..);
    let rows = rows.map(|(kernel, number)| Row {
        id: kernel.handle ^ number << 48,
        cells: vec![
            GridCell::Count(kernel.launches),
            GridCell::Rate(kernel.per_second),
            GridCell::Share(Some(kernel.launches as f64 / all.max(1) as f64)),
            GridCell::Volume(kernel.grid),
            GridCell::Volume(kernel.block),
            GridCell::Name(Cow::Borrowed(kernel.api)),
            GridCell::Kernel(&kernel.name),
        ],
        is_dim: kernel.exited,
    });
    let omitted = launcher.filter(|launcher| launcher.omitted_kernels > 0);
    Grid {
        columns: KERNELS,
        rows: rows.collect(),
        nothing: "no kernel was launched",
        rest: omitted.map(|launcher| {
            let kernels = plural(launcher.omitted_kernels, "more kernel");
            let launches = plural(launcher.omitted_launches, "launch");
            format!("... {kernels}, {launches}")
        }),
        sort: 0,
    }
}

/// The copies of process `pid`, by direction and mode.
pub(crate) fn copies(report: &Report, pid: u32) -> Grid<'_> {
    let copies = report.bandwidth_util.iter();
    let directions = copies.flat_map(|copies| &copies.directions);
    let directions = directions.filter(|copies| copies.pid == pid).zip(0..);
    Grid {
        columns: COPIES,
        rows: directions.map(copies_row).collect(),
        nothing: "no copies",
        rest: None,
        sort: 3,
    }
}

fn copies_row((copies, id): (&DirectionReport, u64)) -> Row<'_> {
    let throughput = |rate: Option<f64>| GridCell::Throughput(rate.unwrap_or(0.0));
    Row {
        id,
        cells: vec![
            GridCell::Name(Cow::Borrowed(copies.direction)),
            GridCell::Name(Cow::Borrowed(copies.mode)),
            GridCell::Count(copies.calls),
            GridCell::Bytes(Some(copies.bytes)),
            GridCell::Throughput(copies.recent_bytes_per_second),
            throughput(copies.bytes_per_second),
            throughput(copies.peak_bytes_per_second),
            GridCell::Share(copies.link_utilisation),
        ],
        is_dim: false,
    }
}
