//! The table of processes.

use std::collections::HashMap;

use gpuprobe_report::Report;
use gpuprobe_report::memleak::{Memleak, ProcessReport};

use super::cell::{BAR, GridCell};
use super::grid::{Grid, GridColumn, Row};
use crate::feed::Update;

const COLUMNS: &[GridColumn] = &[
    GridColumn::number("PID", 7, 0),
    GridColumn::name("USER", 8, 60),
    GridColumn::name("CONTAINER", 12, 150),
    GridColumn::name("COMMAND", 0, 0),
    GridColumn::number("HELD", 11, 0),
    GridColumn::number("%", 5, 70),
    GridColumn::name("KINDS", BAR, 112),
    GridColumn::number("PER MIN", 12, 80),
    GridColumn::name("VERDICT", 9, 0),
    GridColumn::number("LAUNCH/S", 8, 90),
    GridColumn::number("H2D GB/S", 8, 100),
    GridColumn::number("D2H GB/S", 8, 100),
    GridColumn::number("NVIDIA-SMI", 11, 130),
    GridColumn::number("LOST", 5, 120),
];
/// The place of the held bytes.
const HELD: usize = 4;

/// Figures of processes that are not in the report of memory.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    launches: f64,
    to_device: f64,
    to_host: f64,
    lost: u64,
}

fn work_by_process(report: &Report) -> HashMap<u32, Work> {
    let mut all: HashMap<u32, Work> = HashMap::new();
    let launchers = report.cudatrace.iter().flat_map(|trace| &trace.processes);
    for launcher in launchers {
        all.entry(launcher.pid).or_default().launches += launcher.per_second;
    }
    let copies = report.bandwidth_util.iter();
    for copies in copies.flat_map(|copies| &copies.directions) {
        let work = all.entry(copies.pid).or_default();
        match copies.direction {
            "H2D" => work.to_device += copies.recent_bytes_per_second,
            "D2H" => work.to_host += copies.recent_bytes_per_second,
            _ => {}
        }
    }
    for loss in &report.lost_by_user {
        if let Some(pid) = loss.pid {
            let lost = &mut all.entry(pid).or_default().lost;
            *lost = lost.saturating_add(loss.count);
        }
    }
    all
}

/// The table of the processes in the report of `update`.
pub(crate) fn grid(update: &Update) -> Grid<'_> {
    let report = &update.report;
    let works = work_by_process(report);
    let rows = report.memleak.iter().flat_map(|memleak| {
        let works = &works;
        memleak.processes.iter().map(move |process| {
            let work = works.get(&process.pid).copied().unwrap_or_default();
            let verdict = update.verdicts.get(&process.pid).copied();
            row(process, memleak, work, verdict.unwrap_or(""))
        })
    });
    Grid {
        columns: COLUMNS,
        rows: rows.collect(),
        nothing: "no process uses CUDA",
        rest: None,
        sort: HELD,
    }
}

fn row<'a>(
    process: &'a ProcessReport,
    memleak: &Memleak,
    work: Work,
    verdict: &'static str,
) -> Row<'a> {
    let container = process.container.as_deref().unwrap_or_default();
    Row {
        id: u64::from(process.pid),
        cells: vec![
            GridCell::Id(Some(process.pid)),
            GridCell::User(process),
            GridCell::Container(container),
            GridCell::Program(process),
            GridCell::Bytes(Some(process.live.live_bytes)),
            GridCell::Share(share(process, memleak)),
            GridCell::Kinds(&process.kinds),
            GridCell::Change(process.change_bytes_per_minute),
            GridCell::Verdict(verdict),
            GridCell::Rate(work.launches),
            GridCell::Throughput(work.to_device),
            GridCell::Throughput(work.to_host),
            GridCell::Bytes(process.nvml.map(|nvml| nvml.used_bytes)),
            GridCell::Lost(work.lost),
        ],
        is_dim: process.exited || !process.traced,
    }
}

/// Live memory as a share of the memory of the GPUs that it is on, if NVML tells.
fn share(process: &ProcessReport, memleak: &Memleak) -> Option<f64> {
    let total = |index| {
        let mut gpus = memleak.gpus.iter();
        gpus.find(|gpu| Some(gpu.index) == index)?.total_bytes
    };
    let totals = process.gpus.iter().filter_map(|share| total(share.index));
    let total = Some(totals.sum::<u64>()).filter(|total| *total > 0)?;
    Some(process.live.live_bytes as f64 / total as f64)
}
