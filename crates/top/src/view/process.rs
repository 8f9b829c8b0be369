//! A process: its call sites, tensors, kernels, copies, threads and pools.

use std::hash::{DefaultHasher, Hash, Hasher};

use gpuprobe_model::text::{printable, size};
use gpuprobe_report::Report;
use gpuprobe_report::label::shortened;
use gpuprobe_report::memleak::{Omitted, ProcessReport, SiteReport};
use gpuprobe_report::names::simplify;
use gpuprobe_report::verdict::Judgement;
use gpuprobe_report::words::plural;

use super::pages::Page;
use super::table::{Cell, Column, Row, Table};

/// Makes the table of a tab.
type Tab = fn(&Report, &ProcessReport) -> Table;

/// The tabs of the screen of a process.
pub(crate) const TABS: [(&str, Tab); 7] = [
    ("sites", |_, process| sites(process, false)),
    ("tensors", |_, process| sites(process, true)),
    ("kernels", kernels),
    ("copies", copies),
    ("copied at", copy_sites),
    ("threads", |_, process| threads(process)),
    ("pools", |_, process| pools(process)),
];

const SITES: &[Column] = &[
    ("HELD", 11, 0),
    ("N", 7, 0),
    ("CHANGE", 12, 80),
    ("AGE", 5, 60),
    ("VERDICT", 9, 60),
    ("OWNER", 14, 130),
    ("CALL SITE", 0, 0),
];
const KERNELS: &[Column] = &[
    ("LAUNCHES", 10, 0),
    ("PER S", 8, 0),
    ("%", 5, 60),
    ("GRID", 16, 110),
    ("BLOCK", 12, 110),
    ("LAUNCHED WITH", 18, 140),
    ("KERNEL", 0, 0),
];
const COPIES: &[Column] = &[
    ("DIRECTION", 9, 0),
    ("MODE", 5, 0),
    ("COPIES", 9, 0),
    ("BYTES", 11, 0),
    ("GB/S NOW", 8, 60),
    ("GB/S IN CALLS", 13, 76),
    ("GB/S FASTEST", 12, 76),
    ("% OF LINK", 9, 90),
];
const COPY_SITES: &[Column] = &[
    ("COPIES", 9, 0),
    ("BYTES", 11, 0),
    ("DIRECTION", 9, 0),
    ("HOST MEMORY", 11, 76),
    ("WAIT", 9, 76),
    ("TIME", 10, 60),
    ("ADVICE", 60, 150),
    ("CALL SITE", 0, 0),
];
const THREADS: &[Column] = &[
    ("TID", 7, 0),
    ("HELD", 11, 0),
    ("N", 7, 0),
    ("HOST MEMORY", 11, 60),
    ("THREAD", 0, 0),
];
const POOLS: &[Column] = &[
    ("POOL", 18, 0),
    ("DEVICE", 6, 0),
    ("USED", 11, 0),
    ("N", 7, 60),
    ("RESERVED", 11, 0),
];

fn sites(process: &ProcessReport, are_of_tensors: bool) -> Table {
    let sites = process.all_sites();
    let sites = sites.filter(|(_, device)| device.is_some() == are_of_tensors);
    let mut pools = process.allocators.iter();
    let rows = sites.map(|(site, device)| site_row(process.who.pid, device, site));
    Table {
        columns: SITES,
        rows: rows.collect(),
        nothing: match (are_of_tensors, process.has_details) {
            (true, _) => "no tensors of PyTorch or another framework",
            (false, true) => "no memory is held",
            (false, false) => "call sites are in the next report",
        },
        rest: match are_of_tensors {
            true => pools.find_map(|pool| omitted(pool.lists.omitted.as_ref())),
            false => omitted(process.lists.omitted.as_ref()),
        },
        sort: 0,
    }
}

fn omitted(left: Option<&Omitted>) -> Option<String> {
    let left = left.filter(|left| left.sites > 0)?;
    let sites = plural(left.sites, "more call site");
    Some(format!("... {sites}, {}", size(left.bytes)))
}

fn site_row(pid: u32, device: Option<u16>, site: &SiteReport) -> Row {
    let pool = device.map_or(0, |device| u64::from(device) + 1);
    Row {
        id: pool << 32 | u64::from(site.id),
        cells: vec![
            Cell::bytes(Some(site.live.all().bytes)),
            Cell::count(site.live.all().allocations),
            Cell::change(site.change_bytes()),
            Cell::age(site.ages_ns.0),
            Cell::verdict(site.judgement.as_ref().map(Judgement::shown)),
            Cell::name(&site.owner),
            Cell::name(&shortened(&site.label)),
        ],
        is_dim: false,
        opens: Some(Page::Site(pid, device, site.id)),
    }
}

fn kernels(report: &Report, process: &ProcessReport) -> Table {
    let pid = process.who.pid;
    let trace = report.cudatrace.as_ref();
    let mut launchers = trace.into_iter().flat_map(|trace| &trace.processes);
    let launcher = launchers.find(|launcher| launcher.who.pid == pid);
    let all = launcher.map_or(0, |launcher| launcher.launches);
    let kernels = trace.into_iter().flat_map(|trace| &trace.kernels);
    let kernels = kernels.filter(|kernel| kernel.pid == pid).zip(0..);
    let rows = kernels.map(|(kernel, number)| {
        let cells = vec![
            Cell::count(kernel.launches),
            Cell::rate(kernel.per_second),
            Cell::share(Some(kernel.launches as f64 / all.max(1) as f64)),
            Cell::volume(kernel.grid),
            Cell::volume(kernel.block),
            Cell::name(kernel.api),
            Cell::name(&simplify(&kernel.name)),
        ];
        Row {
            is_dim: kernel.exited,
            ..Row::new(kernel.handle ^ number << 48, cells)
        }
    });
    let omitted = launcher.filter(|launcher| launcher.omitted_kernels > 0);
    Table {
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

/// By direction and mode.
fn copies(report: &Report, process: &ProcessReport) -> Table {
    let copies = report.bandwidth_util.iter();
    let directions = copies.flat_map(|copies| &copies.directions);
    let directions = directions.filter(|copies| copies.who.pid == process.who.pid);
    let rows = directions.zip(0..).map(|(copies, id)| {
        let cells = vec![
            Cell::name(copies.direction),
            Cell::name(copies.mode),
            Cell::count(copies.calls),
            Cell::bytes(Some(copies.bytes)),
            Cell::throughput(Some(copies.recent_bytes_per_second)),
            Cell::throughput(copies.bytes_per_second),
            Cell::throughput(copies.peak_bytes_per_second),
            Cell::share(copies.link_utilisation),
        ];
        Row::new(id, cells)
    });
    Table {
        columns: COPIES,
        rows: rows.collect(),
        nothing: "no copies",
        sort: 3,
        ..Table::default()
    }
}

/// By call site, direction and host memory.
fn copy_sites(report: &Report, process: &ProcessReport) -> Table {
    let pid = process.who.pid;
    let copies = report.bandwidth_util.iter();
    let sites = copies.flat_map(|copies| &copies.sites);
    let rows = sites.filter(|site| site.pid == pid).map(|site| {
        let cells = vec![
            Cell::count(site.calls),
            Cell::bytes(Some(site.bytes)),
            Cell::name(site.direction),
            Cell::name(site.host_memory.unwrap_or_default()),
            Cell::count(site.waits),
            Cell::ns(site.ns),
            Cell::name(site.advice.unwrap_or_default()),
            Cell::name(&site.label),
        ];
        let mut id = DefaultHasher::new();
        (&site.label, &site.api, site.direction, site.host_memory).hash(&mut id);
        Row::new(id.finish(), cells)
    });
    Table {
        columns: COPY_SITES,
        rows: rows.collect(),
        nothing: "no copies, or their call sites are in the next report",
        sort: 5,
        ..Table::default()
    }
}

fn threads(process: &ProcessReport) -> Table {
    let rows = process.threads.iter().map(|thread| {
        let live = &thread.live;
        let cells = vec![
            Cell::id(thread.tid),
            Cell::bytes(Some(live.gpu.bytes)),
            Cell::count(live.all().allocations),
            Cell::bytes(Some(live.host.bytes)),
            Cell::name(thread.comm.as_deref().unwrap_or_default()),
        ];
        Row::new(u64::from(thread.tid.unwrap_or(0)), cells)
    });
    Table {
        columns: THREADS,
        rows: rows.collect(),
        nothing: "no thread holds memory",
        sort: 1,
        ..Table::default()
    }
}

fn pools(process: &ProcessReport) -> Table {
    let rows = process.pools.iter().zip(0..).map(|(pool, id)| {
        let handle = pool.pool.map(|handle| format!("{handle:#x}"));
        let cells = vec![
            Cell::name(handle.as_deref().unwrap_or("of the device")),
            Cell::id(pool.device.map(u32::from)),
            Cell::bytes(Some(pool.used_bytes)),
            Cell::count(pool.used_allocations),
            match pool.reserved_bytes {
                None => Cell::name("unknown"),
                reserved => Cell::bytes(reserved),
            },
        ];
        Row::new(id, cells)
    });
    Table {
        columns: POOLS,
        rows: rows.collect(),
        nothing: "no pools of stream-ordered memory",
        sort: 2,
        ..Table::default()
    }
}

/// The line about a process: program, owner, memory.
pub(crate) fn title(process: &ProcessReport) -> String {
    let container = process.container.as_deref().map_or(String::new(), |id| {
        format!("  container {}", printable(id.get(..12).unwrap_or(id)))
    });
    let (live, peak) = (size(process.live.gpu.bytes), size(process.peak_bytes));
    let title = process.title();
    format!("{title}{container}  {live} held, peak {peak}")
}
