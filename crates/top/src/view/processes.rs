//! The table of processes.

use std::collections::HashMap;

use gpuprobe_model::text::size;
use gpuprobe_os::color::Tone;
use gpuprobe_report::Report;
use gpuprobe_report::memleak::{Memleak, ProcessReport, SiteReport};
use gpuprobe_report::verdict_word;
use gpuprobe_report::words::signed_size;
use ratatui_core::text::Line;

use super::grid::{Grid, GridCell, GridColumn, Row, SortKey};
use super::look::{Theme, kinds_bar};

/// Columns of the bar of kinds.
const BAR: u16 = 10;

const COLUMNS: &[GridColumn] = &[
    GridColumn::number("PID", 7, 0),
    GridColumn::name("USER", 8, 60),
    GridColumn::name("CONTAINER", 12, 150),
    GridColumn::name("COMMAND", 0, 0),
    GridColumn::number("HELD", 10, 0),
    GridColumn::number("%", 5, 70),
    GridColumn::name("KINDS", BAR, 112),
    GridColumn::number("PER MIN", 11, 80),
    GridColumn::name("VERDICT", 9, 0),
    GridColumn::number("LAUNCH/S", 8, 90),
    GridColumn::number("H2D GB/S", 8, 100),
    GridColumn::number("D2H GB/S", 8, 100),
    GridColumn::number("NVIDIA-SMI", 10, 130),
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

/// The table of the processes in `report`.
pub(crate) fn grid(report: &Report, theme: Theme) -> Grid {
    let works = work_by_process(report);
    let row = |memleak: &Memleak, process: &ProcessReport| {
        let work = works.get(&process.pid).copied().unwrap_or_default();
        row(process, memleak, work, theme)
    };
    let memleak = report.memleak.iter();
    Grid {
        columns: COLUMNS,
        rows: memleak
            .flat_map(|memleak| {
                memleak
                    .processes
                    .iter()
                    .map(|process| row(memleak, process))
            })
            .collect(),
        nothing: "no process uses CUDA",
        rest: None,
        sort: HELD,
    }
}

fn row(process: &ProcessReport, memleak: &Memleak, work: Work, theme: Theme) -> Row {
    let who = process.who();
    let held = process.live.live_bytes;
    let program = match process.exited {
        true => format!("{} (ended)", who.program()),
        false => who.program(),
    };
    let container = process.container.as_deref().unwrap_or_default();
    let container = container.get(..12).unwrap_or(container);
    let share = share(process, memleak);
    let change = process.change_bytes_per_minute;
    let kinds = process.kinds.0.iter().map(|(kind, sum)| (*kind, sum.bytes));
    let used = process.nvml.map(|nvml| nvml.used_bytes);
    let bar = kinds_bar(kinds, usize::from(BAR), theme);
    Row {
        id: u64::from(process.pid),
        cells: vec![
            GridCell::number(process.pid.to_string(), -f64::from(process.pid)),
            GridCell::name(&who.user()),
            GridCell::name(container),
            GridCell::name(&program),
            GridCell::number(size(held), held as f64),
            optional(share, |share| format!("{:.1}", share * 100.0)),
            GridCell {
                key: SortKey::Text(bar.to_string()),
                line: bar,
            },
            optional(change.map(|change| change as f64), |_| {
                change.map_or(String::new(), signed_size)
            }),
            verdict(process, theme),
            rate(work.launches),
            gigabytes(work.to_device),
            gigabytes(work.to_host),
            optional(used.map(|used| used as f64), |_| {
                used.map_or(String::new(), size)
            }),
            lost(work.lost, theme),
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

fn optional(value: Option<f64>, text: impl Fn(f64) -> String) -> GridCell {
    match value {
        Some(value) => GridCell::number(text(value), value),
        None => GridCell::number("", f64::NEG_INFINITY),
    }
}

/// A number of events per second; empty for none.
pub(crate) fn rate(per_second: f64) -> GridCell {
    let text = match per_second {
        0.0 => String::new(),
        ..10.0 => format!("{per_second:.1}"),
        _ => format!("{per_second:.0}"),
    };
    GridCell::number(text, per_second)
}

/// A throughput; empty for none.
pub(crate) fn gigabytes(bytes_per_second: f64) -> GridCell {
    let text = match bytes_per_second {
        0.0 => String::new(),
        _ => format!("{:.3}", bytes_per_second / 1e9),
    };
    GridCell::number(text, bytes_per_second)
}

fn lost(count: u64, theme: Theme) -> GridCell {
    match count {
        0 => GridCell::number("", 0.0),
        _ => GridCell::number(count.to_string(), count as f64).styled(theme.tone(Tone::Bad)),
    }
}

/// Verdicts in the order in which they matter.
const RANKS: [&str; 8] = [
    "growing per cycle",
    "growing",
    "growing?",
    "freed late",
    "cache",
    "plateau",
    "one-off",
    "",
];

/// How much a verdict matters, by its word: the smaller, the more.
pub(crate) fn rank(word: &str) -> usize {
    let found = RANKS.iter().position(|known| *known == word);
    found.unwrap_or(RANKS.len())
}

/// The word of the verdict on a call site.
pub(crate) fn word(site: &SiteReport) -> &'static str {
    site.judgement.as_ref().map_or("", verdict_word)
}

/// A cell with a verdict.
pub(crate) fn verdict_cell(word: &'static str, theme: Theme) -> GridCell {
    let line = Line::styled(word, theme.verdict(word));
    GridCell {
        line,
        key: SortKey::Number(-(rank(word) as f64)),
    }
}

/// The gravest verdict among the listed call sites.
fn verdict(process: &ProcessReport, theme: Theme) -> GridCell {
    let tensors = process.pytorch.iter().chain(&process.tensorflow);
    let tensors = tensors.flat_map(|pool| pool.sites.iter().flatten());
    let sites = process.listed().iter().chain(tensors);
    let gravest = sites.map(word).min_by_key(|word| rank(word));
    verdict_cell(gravest.unwrap_or(""), theme)
}
