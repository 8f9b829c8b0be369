//! A process and the memory that it holds, for people.

use std::cmp::Reverse;
use std::io::{self, Write};

use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::totals::Total;
use gpuprobe_model::text::{printable, size};

use super::nvidia_smi::write_held;
use super::page::Page;
use super::pytorch;
use super::sites::{SiteListOwner, write_details, write_sites};
use super::table::{Column, ReportTable};
use crate::GroupBy;
use crate::memleak::{Memleak, PoolReport, ProcessReport};
use crate::owners::{OwnerReport, UNKNOWN};
use crate::words::{Who, age, dim, plural, short_model, wrapped};

/// Owners that are named at most; the others are one sum.
const MAX_OWNERS: usize = 8;

impl ProcessReport {
    /// Name, user and command of the process.
    pub fn who(&self) -> Who<'_> {
        Who {
            pid: self.pid,
            comm: self.comm.as_deref(),
            command: self.command.as_deref(),
            user: self.user.as_deref(),
            uid: self.uid,
            exited: self.exited,
        }
    }
}

/// Writes a process: who it is, what it holds, and where it was allocated.
pub(super) fn write(
    process: &ProcessReport,
    memleak: &Memleak,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    page.head_parts(&title(process, memleak, page), out)?;
    write_held(process, page, out)?;
    if !process.traced {
        return Ok(());
    }
    if memleak.view.site.is_none() {
        pytorch::write(process, memleak, page, out)?;
    }
    if memleak.view.tensor_site.is_some() {
        return Ok(());
    }
    for name in &process.framework_pools {
        let said = format!(
            "{name} has a pool of its own: what it hands out is not seen, the lines below are those \
             that made it grow"
        );
        wrapped("", &said, page.columns, out)?;
    }
    let sites = process.listed();
    match (memleak.group, memleak.view.site) {
        (GroupBy::Kind, _) => write_kinds(process, page, out)?,
        (_, Some(number)) => match sites.iter().find(|site| site.has_id(number)) {
            Some(site) => {
                let held = SiteListOwner::Cuda(process);
                write_details(site, held, sites, &memleak.view, page, out)?;
            }
            None => writeln!(out, "nothing is live at site {number}")?,
        },
        _ => write_sites(process, sites, memleak, page, out)?,
    }
    if memleak.view.allocations {
        write_allocations(process, memleak, page, out)?;
    }
    write_owners(&process.owners, page, out)?;
    write_sums(process, memleak.group, page, out)?;
    process
        .pools
        .iter()
        .try_for_each(|pool| write_pool(pool, out))
}

/// `python3 train.py  pid 574 ada  GPU 0 H200  traced 4m12s from its start`.
fn title(process: &ProcessReport, memleak: &Memleak, page: &Page) -> Vec<String> {
    let mut title = vec![process.who().title()];
    if let Some(container) = &process.container {
        let id = container.get(..12).unwrap_or(container);
        let inner = process.container_pid;
        let inner = inner.map_or(String::new(), |pid| format!(" (pid {pid})"));
        title.push(format!("container {id}{inner}"));
    }
    for share in &process.gpus {
        title.push(match share.index {
            Some(index) => format!("GPU {index}{}", model(memleak, index)),
            None => "GPU ?".into(),
        });
    }
    if process.traced && process.traced_seconds > 0.0 && !page.is_of_file {
        let start = if process.from_start {
            " from its start"
        } else {
            ""
        };
        let traced = age((process.traced_seconds * 1e9) as u64);
        title.push(format!("traced {traced}{start}"));
    }
    title
}

/// The model of a GPU, without what they all begin with.
pub(super) fn model(memleak: &Memleak, index: u32) -> String {
    let gpu = memleak.gpus.iter().find(|gpu| gpu.index == index);
    gpu.map_or(String::new(), |gpu| format!(" {}", short_model(&gpu.name)))
}

fn write_kinds(process: &ProcessReport, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    let columns = [
        Column::right("HELD"),
        Column::right("N"),
        Column::left("OF"),
        Column::text("KIND"),
    ];
    let mut table = ReportTable::new(0, &columns);
    for (kind, total) in largest_first(process) {
        table.row([
            size(total.bytes),
            total.allocations.to_string(),
            owner(kind).into(),
            kind.to_string(),
        ]);
    }
    table.write(page.columns, out)
}

/// Memory by kind, without kinds that have none.
pub(super) fn largest_first(process: &ProcessReport) -> Vec<(MemoryKind, Total)> {
    let kinds = process.kinds.0.iter().copied();
    let mut kinds: Vec<_> = kinds.filter(|(_, total)| total.bytes > 0).collect();
    kinds.sort_by_key(|(_, total)| Reverse(total.bytes));
    kinds
}

/// Memory of one kind.
pub(super) fn of_kind((kind, total): &(MemoryKind, Total)) -> String {
    let besides = match kind.belongs() {
        Belongs::Gpu => "",
        Belongs::Host => " (host)",
        Belongs::Elsewhere => " (not counted)",
    };
    format!("{kind} {}{besides}", size(total.bytes))
}

fn owner(kind: MemoryKind) -> &'static str {
    match kind.belongs() {
        Belongs::Gpu => "GPU",
        Belongs::Host => "host",
        Belongs::Elsewhere => "others",
    }
}

/// Single allocations, which take as many lines as there are.
fn write_allocations(
    process: &ProcessReport,
    memleak: &Memleak,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let columns = [
        Column::right("ADDRESS"),
        Column::right("SIZE"),
        Column::left("GPU"),
        Column::left("KIND"),
        Column::right("SITE"),
        Column::left("THREAD"),
        Column::text("NAME"),
    ];
    let mut table = ReportTable::new(0, &columns);
    let mut omitted = 0;
    let asked = memleak.view.site;
    let found = asked.and_then(|number| process.listed().iter().find(|site| site.has_id(number)));
    let asked = found.map(|site| site.id).or(asked);
    for thread in &process.threads {
        let is_asked = |site: Option<u32>| asked.is_none() || site == asked;
        for allocation in thread.allocations.iter().filter(|a| is_asked(a.site)) {
            table.row([
                format!("{:#x}", allocation.address),
                size(allocation.bytes),
                super::classic::place(allocation),
                allocation.kind.to_string(),
                allocation
                    .site
                    .map_or(String::new(), |site| site.to_string()),
                thread.tid.map_or("?".into(), |tid| tid.to_string()),
                printable(allocation.name.as_deref().unwrap_or_default()),
            ]);
        }
        omitted += thread.omitted_allocations;
    }
    table.write(page.columns, out)?;
    match omitted {
        0 => Ok(()),
        more => {
            let more = format!("... {} (--top all)", plural(more, "more allocation"));
            writeln!(out, "{}", dim(&more))
        }
    }
}

/// By owner, where one is known.
pub(super) fn write_owners(
    owners: &[OwnerReport],
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    if owners
        .iter()
        .all(|one| one.owner == UNKNOWN || one.bytes == 0)
    {
        return Ok(());
    }
    let held: Vec<_> = owners.iter().filter(|one| one.bytes > 0).collect();
    let (shown, others) = held.split_at(held.len().min(MAX_OWNERS));
    let mut parts: Vec<_> = shown
        .iter()
        .map(|one| format!("{} {}", printable(&one.owner), size(one.bytes)))
        .collect();
    if !others.is_empty() {
        let bytes = others.iter().map(|one| one.bytes);
        let bytes = bytes.fold(0, u64::saturating_add);
        parts.push(format!("{} more {}", others.len(), size(bytes)));
    }
    parts[0] = format!("by library: {}", parts[0]);
    page.list(&parts, "  ", out)
}

/// By kind and by device, where that says more than the total.
fn write_sums(
    process: &ProcessReport,
    group: GroupBy,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let kinds = largest_first(process);
    let plain = kinds.iter().all(|(kind, _)| *kind == MemoryKind::Device);
    if !plain && group != GroupBy::Kind {
        let mut kinds: Vec<_> = kinds.iter().map(of_kind).collect();
        kinds[0] = format!("by kind: {}", kinds[0]);
        page.list(&kinds, "  ", out)?;
    }
    if process.devices.len() > 1 {
        let shares = process.gpus.iter().filter(|share| share.live_bytes > 0);
        let mut shares: Vec<_> = shares
            .map(|share| {
                let index = share.index.map_or("?".into(), |index| index.to_string());
                format!("GPU {index} {}", size(share.live_bytes))
            })
            .collect();
        if let Some(first) = shares.first_mut() {
            *first = format!("by GPU: {first}");
            page.list(&shares, "  ", out)?;
        }
    }
    if process.reserved_address_bytes > 0 {
        let reserved = size(process.reserved_address_bytes);
        writeln!(out, "address space reserved, no memory: {reserved}")?;
    }
    Ok(())
}

fn write_pool(pool: &PoolReport, out: &mut dyn Write) -> io::Result<()> {
    let Some(reserved) = pool.reserved_bytes else {
        return Ok(());
    };
    let name = pool
        .pool
        .map_or("of the device".into(), |handle| format!("{handle:#x}"));
    let (used, reserved) = (size(pool.used_bytes), size(reserved));
    writeln!(out, "pool {name}: used {used}, reserved {reserved}")
}
