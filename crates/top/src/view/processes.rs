//! The table of processes.

use gpuprobe_os::color::Tone;
use gpuprobe_report::label::shortened;
use gpuprobe_report::memleak::{Memleak, ProcessReport};

use super::pages::Page;
use super::style::{kinds_bar, style};
use super::table::{Cell, Column, Row, Table};
use crate::feed::Update;

/// Columns of the bar of kinds.
const BAR: u16 = 10;

const COLUMNS: &[Column] = &[
    ("PID", 7, 0),
    ("USER", 8, 60),
    ("CONTAINER", 12, 150),
    ("HELD", 11, 0),
    ("%", 5, 70),
    ("KINDS", BAR, 150),
    ("LAST MIN", 12, 100),
    ("VERDICT", 9, 0),
    ("LAUNCH/S", 8, 110),
    ("H2D GB/S", 8, 120),
    ("D2H GB/S", 8, 120),
    ("NVIDIA-SMI", 11, 130),
    ("LOST", 5, 120),
    ("TOP SITE", 0, 0),
    ("COMMAND", 0, 0),
];
/// The place of the held bytes.
const HELD: usize = 3;

/// The table of the processes in the report of `update`.
pub(crate) fn table(update: &Update) -> Table {
    let rows = update.report.memleak.iter().flat_map(|memleak| {
        let processes = memleak.processes.iter();
        processes.map(move |process| row(process, memleak, update))
    });
    Table {
        columns: COLUMNS,
        rows: rows.collect(),
        nothing: "no process uses CUDA",
        sort: HELD,
        ..Table::default()
    }
}

fn row(process: &ProcessReport, memleak: &Memleak, update: &Update) -> Row {
    let (pid, report) = (process.who.pid, &update.report);
    let container = process.container.as_deref().unwrap_or_default();
    // A single kind is no news.
    let kinds = process.kinds.0.iter().map(|(kind, sum)| (*kind, sum.bytes));
    let kinds = kinds.filter(|_| process.kinds.0.len() > 1);
    let worst = update.verdicts.get(&pid);
    let trace = report.cudatrace.iter();
    let launchers = trace.flat_map(|trace| &trace.processes);
    let launchers = launchers.filter(|launcher| launcher.who.pid == pid);
    let throughput = |direction| {
        let copies = report.bandwidth_util.iter();
        let copies = copies.flat_map(|copies| &copies.directions);
        let here = copies.filter(|copies| copies.who.pid == pid && copies.direction == direction);
        Cell::throughput(Some(here.map(|here| here.recent_bytes_per_second).sum()))
    };
    let losses = report.lost_by_user.iter();
    let losses = losses.filter(|loss| loss.pid == Some(pid));
    let lost = losses.map(|loss| loss.count).reduce(u64::saturating_add);
    let mut lost = Cell::count(lost.filter(|lost| *lost > 0));
    lost.line = lost.line.style(style(Tone::Bad));
    let cells = vec![
        Cell::id(Some(pid)),
        Cell::name(&process.who.user()),
        Cell::name(container.get(..12).unwrap_or(container)),
        Cell::bytes(Some(process.live.gpu.bytes)),
        Cell::share(share(process, memleak)),
        Cell::line(kinds_bar(kinds, usize::from(BAR))),
        Cell::change(process.change_bytes_per_minute),
        Cell::verdict(worst.map(|worst| worst.verdict)),
        Cell::rate(launchers.map(|launcher| launcher.per_second).sum()),
        throughput("H2D"),
        throughput("D2H"),
        Cell::bytes(process.nvml.map(|nvml| nvml.used_bytes)),
        lost,
        Cell::name(&worst.map_or(String::new(), |worst| shortened(&worst.label))),
        Cell::name(&process.program()),
    ];
    Row {
        id: u64::from(pid),
        cells,
        is_dim: process.exited || !process.traced,
        opens: Some(Page::Process(pid)),
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
    Some(process.live.gpu.bytes as f64 / total as f64)
}
