//! A process: its call sites, tensors, kernels, copies, threads and pools.

use gpuprobe_model::text::{printable, size};
use gpuprobe_report::Report;
use gpuprobe_report::memleak::{LeftOut, PoolReport, ProcessReport, SiteReport, ThreadReport};
use gpuprobe_report::names::simplify;
use gpuprobe_report::words::{plural, short_age, signed_size};
use ratatui_core::style::Color;
use ratatui_core::text::Line;

use super::grid::{Grid, GridCell, GridColumn, Row, SortKey};
use super::look::{Theme, spark};
use super::processes::{gigabytes, rate, verdict_cell, word};
use crate::series::{Figure, FigureSeries};

/// A tab of the screen of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    Sites,
    Tensors,
    Kernels,
    Copies,
    Threads,
    Pools,
}

impl Tab {
    pub(crate) const ALL: [Self; 6] = [
        Self::Sites,
        Self::Tensors,
        Self::Kernels,
        Self::Copies,
        Self::Threads,
        Self::Pools,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sites => "sites",
            Self::Tensors => "tensors",
            Self::Kernels => "kernels",
            Self::Copies => "copies",
            Self::Threads => "threads",
            Self::Pools => "pools",
        }
    }

    pub(crate) fn place(self) -> usize {
        Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0)
    }
}

/// Columns of the sparkline of a call site.
const SPARK: u16 = 12;

const SITES: &[GridColumn] = &[
    GridColumn::number("HELD", 10, 0),
    GridColumn::number("N", 7, 0),
    GridColumn::number("CHANGE", 11, 80),
    GridColumn::number("AGE", 5, 60),
    GridColumn::name("GROWTH", SPARK, 100),
    GridColumn::name("VERDICT", 9, 60),
    GridColumn::name("OWNER", 14, 130),
    GridColumn::name("CALL SITE", 0, 0),
];
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
    GridColumn::number("BYTES", 10, 0),
    GridColumn::number("GB/S NOW", 8, 60),
    GridColumn::number("GB/S IN CALLS", 13, 76),
    GridColumn::number("GB/S FASTEST", 12, 76),
    GridColumn::number("% OF LINK", 9, 90),
];
const THREADS: &[GridColumn] = &[
    GridColumn::number("TID", 7, 0),
    GridColumn::number("HELD", 10, 0),
    GridColumn::number("N", 7, 0),
    GridColumn::number("HOST MEMORY", 11, 60),
    GridColumn::name("THREAD", 0, 0),
];
const POOLS: &[GridColumn] = &[
    GridColumn::name("POOL", 18, 0),
    GridColumn::number("DEVICE", 6, 0),
    GridColumn::number("USED", 10, 0),
    GridColumn::number("N", 7, 60),
    GridColumn::number("RESERVED", 10, 0),
];

/// The table of `tab` of the process.
pub(crate) fn grid(
    tab: Tab,
    report: &Report,
    process: &ProcessReport,
    series: &FigureSeries,
    theme: Theme,
) -> Grid {
    let grid = |columns, rows, nothing| Grid {
        columns,
        rows,
        nothing,
        rest: None,
        sort: 0,
    };
    match tab {
        Tab::Sites => {
            let sites = process.listed().iter();
            let sites = sites.map(|site| site_row(process.pid, None, site, series, theme));
            Grid {
                rest: omitted(process.omitted.as_ref()),
                ..grid(SITES, sites.collect(), "no memory is held")
            }
        }
        Tab::Tensors => {
            let pools = process.pytorch.iter().chain(&process.tensorflow);
            let left = pools
                .clone()
                .find_map(|pool| omitted(pool.omitted.as_ref()));
            let sites = pools.flat_map(|pool| {
                let sites = pool.sites.iter().flatten();
                sites.map(|site| site_row(process.pid, Some(pool.device), site, series, theme))
            });
            Grid {
                rest: left,
                ..grid(
                    SITES,
                    sites.collect(),
                    "no tensors of PyTorch or TensorFlow",
                )
            }
        }
        Tab::Kernels => kernels(report, process.pid),
        Tab::Copies => Grid {
            sort: 3,
            ..grid(COPIES, copies(report, process.pid), "no copies")
        },
        Tab::Threads => {
            let threads = process.threads.iter().map(thread_row);
            Grid {
                sort: 1,
                ..grid(THREADS, threads.collect(), "no thread holds memory")
            }
        }
        Tab::Pools => {
            let pools = process.pools.iter().zip(0..).map(pool_row);
            Grid {
                sort: 2,
                ..grid(POOLS, pools.collect(), "no pools of stream-ordered memory")
            }
        }
    }
}

fn omitted(left: Option<&LeftOut>) -> Option<String> {
    let left = left.filter(|left| left.sites > 0)?;
    let sites = plural(left.sites, "more call site");
    Some(format!("... {sites}, {}", size(left.bytes)))
}

/// Id of the row of a call site.
pub(crate) fn site_id(device: Option<u16>, site: u32) -> u64 {
    let device = device.map_or(0, |device| u64::from(device) + 1);
    device << 32 | u64::from(site)
}

/// The device of tensors, and the number of the call site, of a row's id.
pub(crate) fn site_of(id: u64) -> (Option<u16>, u32) {
    let device = (id >> 32).checked_sub(1);
    let site = id & u64::from(u32::MAX);
    (
        device.and_then(|device| u16::try_from(device).ok()),
        u32::try_from(site).unwrap_or(0),
    )
}

fn site_row(
    pid: u32,
    device: Option<u16>,
    site: &SiteReport,
    series: &FigureSeries,
    theme: Theme,
) -> Row {
    let (bytes, change) = (site.live.bytes(), site.change_bytes());
    let values = series.values(Figure::Site(pid, device, site.id), usize::from(SPARK));
    let most = values.iter().flatten().max().copied().unwrap_or(0);
    let growth = Line::styled(spark(&values, most), theme.color(Color::Cyan));
    let (oldest_ns, _) = site.ages_ns;
    let change = GridCell::number(
        change.map_or(String::new(), signed_size),
        change.map_or(f64::NEG_INFINITY, |change| change as f64),
    );
    Row {
        id: site_id(device, site.id),
        cells: vec![
            GridCell::number(size(bytes), bytes as f64),
            GridCell::number(
                site.live.allocations().to_string(),
                site.live.allocations() as f64,
            ),
            change.clone(),
            GridCell::number(short_age(oldest_ns), oldest_ns as f64),
            GridCell {
                line: growth,
                key: change.key,
            },
            verdict_cell(word(site), theme),
            GridCell::name(&site.owner),
            GridCell::name(&site.label),
        ],
        is_dim: false,
    }
}

fn kernels(report: &Report, pid: u32) -> Grid {
    let trace = report.cudatrace.as_ref();
    let launchers = trace.into_iter().flat_map(|trace| &trace.processes);
    let launcher = launchers.into_iter().find(|launcher| launcher.pid == pid);
    let all = launcher.map_or(0, |launcher| launcher.launches);
    let kernels = trace.into_iter().flat_map(|trace| &trace.kernels);
    let rows = kernels.filter(|kernel| kernel.pid == pid).zip(0..);
    let rows = rows.map(|(kernel, number)| {
        let share = kernel.launches as f64 / all.max(1) as f64;
        let dimensions = |sizes: [u32; 3]| {
            let [x, y, z] = sizes;
            let text = format!("{x}x{y}x{z}");
            let blocks = sizes.map(f64::from).iter().product();
            GridCell {
                line: Line::from(text),
                key: SortKey::Number(blocks),
            }
        };
        Row {
            id: kernel.handle ^ number << 48,
            cells: vec![
                GridCell::number(kernel.launches.to_string(), kernel.launches as f64),
                rate(kernel.per_second),
                GridCell::number(format!("{:.1}", share * 100.0), share),
                dimensions(kernel.grid),
                dimensions(kernel.block),
                GridCell::name(kernel.api),
                GridCell::name(&simplify(&kernel.name)),
            ],
            is_dim: kernel.exited,
        }
    });
    let omitted = launcher.filter(|launcher| launcher.omitted_kernels > 0);
    Grid {
        columns: KERNELS,
        rows: rows.collect(),
        nothing: "no kernel was launched",
        rest: omitted.map(|launcher| {
            let kernels = plural(launcher.omitted_kernels, "more kernel");
            format!(
                "... {kernels}, {}",
                plural(launcher.omitted_launches, "launch")
            )
        }),
        sort: 0,
    }
}

fn copies(report: &Report, pid: u32) -> Vec<Row> {
    let copies = report.bandwidth_util.iter();
    let directions = copies.flat_map(|copies| &copies.directions);
    let directions = directions.filter(|copies| copies.pid == pid).zip(0..);
    let throughput = |rate: Option<f64>| gigabytes(rate.unwrap_or(0.0));
    let row = |(copies, id): (&gpuprobe_report::bandwidth::DirectionReport, u64)| Row {
        id,
        cells: vec![
            GridCell::name(copies.direction),
            GridCell::name(copies.mode),
            GridCell::number(copies.calls.to_string(), copies.calls as f64),
            GridCell::number(size(copies.bytes), copies.bytes as f64),
            gigabytes(copies.recent_bytes_per_second),
            throughput(copies.bytes_per_second),
            throughput(copies.peak_bytes_per_second),
            match copies.link_utilisation {
                Some(share) => GridCell::number(format!("{:.1}", share * 100.0), share),
                None => GridCell::number("", 0.0),
            },
        ],
        is_dim: false,
    };
    directions.map(row).collect()
}

fn thread_row(thread: &ThreadReport) -> Row {
    let live = &thread.live;
    let tid = thread.tid.unwrap_or(0);
    Row {
        id: u64::from(tid),
        cells: vec![
            GridCell::number(
                thread.tid.map_or("?".into(), |tid| tid.to_string()),
                -f64::from(tid),
            ),
            GridCell::number(size(live.live_bytes), live.live_bytes as f64),
            GridCell::number(live.allocations().to_string(), live.allocations() as f64),
            GridCell::number(size(live.host_bytes), live.host_bytes as f64),
            GridCell::name(thread.comm.as_deref().unwrap_or_default()),
        ],
        is_dim: false,
    }
}

fn pool_row((pool, id): (&PoolReport, u64)) -> Row {
    let name = pool
        .pool
        .map_or("of the device".into(), |pool| format!("{pool:#x}"));
    let device = pool.device.map_or("".into(), |device| device.to_string());
    let reserved = pool.reserved_bytes;
    Row {
        id,
        cells: vec![
            GridCell::name(&name),
            GridCell::number(device, f64::from(pool.device.unwrap_or(u16::MAX))),
            GridCell::number(size(pool.used_bytes), pool.used_bytes as f64),
            GridCell::number(
                pool.used_allocations.to_string(),
                pool.used_allocations as f64,
            ),
            GridCell::number(
                reserved.map_or("unknown".into(), size),
                reserved.unwrap_or(0) as f64,
            ),
        ],
        is_dim: false,
    }
}

/// The line about a process: program, owner, memory.
pub(crate) fn title(process: &ProcessReport) -> String {
    let mut title = process.who().title();
    if let Some(container) = &process.container {
        let id = container.get(..12).unwrap_or(container);
        title += &format!("  container {}", printable(id));
    }
    title += &format!(
        "  {} held, peak {}",
        size(process.live.live_bytes),
        size(process.peak_bytes)
    );
    title
}
