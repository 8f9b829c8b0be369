//! A process: its call sites, tensors, kernels, copies, threads and pools.

use std::borrow::Cow;

use gpuprobe_model::text::{printable, size};
use gpuprobe_report::memleak::{Omitted, PoolReport, ProcessReport, SiteReport, ThreadReport};
use gpuprobe_report::words::plural;
use gpuprobe_report::{Report, verdict_word};

use super::cell::{GridCell, SPARK};
use super::grid::{Grid, GridColumn, Row};
use super::work;
use crate::series::Figure;

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

    fn name(self) -> &'static str {
        match self {
            Self::Sites => "sites",
            Self::Tensors => "tensors",
            Self::Kernels => "kernels",
            Self::Copies => "copies",
            Self::Threads => "threads",
            Self::Pools => "pools",
        }
    }

    /// The tab as it is drawn.
    pub(crate) fn label(self) -> String {
        format!(" {} ", self.name())
    }

    pub(crate) fn place(self) -> usize {
        Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0)
    }
}

const SITES: &[GridColumn] = &[
    GridColumn::number("HELD", 11, 0),
    GridColumn::number("N", 7, 0),
    GridColumn::number("CHANGE", 12, 80),
    GridColumn::number("AGE", 5, 60),
    GridColumn::name("GROWTH", SPARK, 100),
    GridColumn::name("VERDICT", 9, 60),
    GridColumn::name("OWNER", 14, 130),
    GridColumn::name("CALL SITE", 0, 0),
];
const THREADS: &[GridColumn] = &[
    GridColumn::number("TID", 7, 0),
    GridColumn::number("HELD", 11, 0),
    GridColumn::number("N", 7, 0),
    GridColumn::number("HOST MEMORY", 11, 60),
    GridColumn::name("THREAD", 0, 0),
];
const POOLS: &[GridColumn] = &[
    GridColumn::name("POOL", 18, 0),
    GridColumn::number("DEVICE", 6, 0),
    GridColumn::number("USED", 11, 0),
    GridColumn::number("N", 7, 60),
    GridColumn::number("RESERVED", 11, 0),
];

/// The table of `tab` of the process.
pub(crate) fn grid<'a>(tab: Tab, report: &'a Report, process: &'a ProcessReport) -> Grid<'a> {
    let of = |columns, rows, nothing, sort| Grid {
        columns,
        rows,
        nothing,
        rest: None,
        sort,
    };
    match tab {
        Tab::Sites => sites(process),
        Tab::Tensors => tensors(process),
        Tab::Kernels => work::kernels(report, process.pid),
        Tab::Copies => work::copies(report, process.pid),
        Tab::Threads => {
            let threads = process.threads.iter().map(thread_row).collect();
            of(THREADS, threads, "no thread holds memory", 1)
        }
        Tab::Pools => {
            let pools = process.pools.iter().zip(0..).map(pool_row).collect();
            of(POOLS, pools, "no pools of stream-ordered memory", 2)
        }
    }
}

fn sites(process: &ProcessReport) -> Grid<'_> {
    let sites = process.listed().iter();
    Grid {
        columns: SITES,
        rows: sites
            .map(|site| site_row(process.pid, None, site))
            .collect(),
        nothing: match process.has_details {
            true => "no memory is held",
            false => "call sites are in the next report",
        },
        rest: omitted(process.omitted.as_ref()),
        sort: 0,
    }
}

fn tensors(process: &ProcessReport) -> Grid<'_> {
    let pools = || process.pytorch.iter().chain(&process.tensorflow);
    let rows = pools().flat_map(|pool| {
        let sites = pool.sites.iter().flatten();
        sites.map(|site| site_row(process.pid, Some(pool.device), site))
    });
    Grid {
        columns: SITES,
        rows: rows.collect(),
        nothing: "no tensors of PyTorch or TensorFlow",
        rest: pools().find_map(|pool| omitted(pool.omitted.as_ref())),
        sort: 0,
    }
}

fn omitted(left: Option<&Omitted>) -> Option<String> {
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

fn site_row(pid: u32, device: Option<u16>, site: &SiteReport) -> Row<'_> {
    let change = site.change_bytes();
    let (oldest_ns, _) = site.ages_ns;
    Row {
        id: site_id(device, site.id),
        cells: vec![
            GridCell::Bytes(Some(site.live.bytes())),
            GridCell::Count(site.live.allocations()),
            GridCell::Change(change),
            GridCell::Age(oldest_ns),
            GridCell::Curve(Figure::Site(pid, device, site.id), change),
            GridCell::Verdict(word(site)),
            GridCell::Name(Cow::Borrowed(&site.owner)),
            GridCell::Name(Cow::Borrowed(&site.label)),
        ],
        is_dim: false,
    }
}

/// The word of the verdict on a call site.
pub(crate) fn word(site: &SiteReport) -> &'static str {
    site.judgement.as_ref().map_or("", verdict_word)
}

fn thread_row(thread: &ThreadReport) -> Row<'_> {
    let live = &thread.live;
    Row {
        id: u64::from(thread.tid.unwrap_or(0)),
        cells: vec![
            GridCell::Id(thread.tid),
            GridCell::Bytes(Some(live.live_bytes)),
            GridCell::Count(live.allocations()),
            GridCell::Bytes(Some(live.host_bytes)),
            GridCell::Name(Cow::Borrowed(thread.comm.as_deref().unwrap_or_default())),
        ],
        is_dim: false,
    }
}

fn pool_row((pool, id): (&PoolReport, u64)) -> Row<'_> {
    let name = match pool.pool {
        Some(handle) => Cow::Owned(format!("{handle:#x}")),
        None => Cow::Borrowed("of the device"),
    };
    Row {
        id,
        cells: vec![
            GridCell::Name(name),
            GridCell::Id(pool.device.map(u32::from)),
            GridCell::Bytes(Some(pool.used_bytes)),
            GridCell::Count(pool.used_allocations),
            match pool.reserved_bytes {
                None => GridCell::Name(Cow::Borrowed("unknown")),
                reserved => GridCell::Bytes(reserved),
            },
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
