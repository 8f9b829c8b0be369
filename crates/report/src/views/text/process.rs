//! A process and the memory that it holds, for people.

use std::cmp::Reverse;
use std::io::{self, Write};

use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::totals::Total;
use gpuprobe_model::text::{printable, size};

use super::nvidia_smi::write_held;
use super::page::Page;
use super::pytorch;
use super::sites::SiteList;
use crate::GroupBy;
use crate::memleak::{Memleak, ProcessReport, ThreadReport};
use crate::owners::{OwnerReport, UNKNOWN};
use crate::views::tables::memory::{AllocationRow, KINDS};
use crate::words::{Who, age, amount, plural, short_model};

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
    page: &mut Page<'_>,
) -> io::Result<()> {
    page.head(&title(process, memleak, page).join("  "))?;
    write_held(process, page)?;
    if !process.traced {
        return Ok(());
    }
    let view = &memleak.view;
    if view.site.is_none() {
        pytorch::write(process, view, usize::MAX, page)?;
    }
    if view.tensor_site.is_some() {
        return Ok(());
    }
    for name in &process.framework_pools {
        writeln!(
            page,
            "{name} has a pool of its own: what it hands out is not seen, the lines below are those \
             that made it grow"
        )?;
    }
    let sites = SiteList::new(process);
    match (memleak.group, view.site) {
        (GroupBy::Kind, _) => page.table(KINDS, &largest_first(process), 0)?,
        (GroupBy::Thread, _) => write_allocations(process, None, page)?,
        (_, Some(number)) => sites.write_one(number, view, page)?,
        _ => {
            sites.write(usize::MAX, view, page)?;
            sites.write_rest(page)?;
        }
    }
    if view.allocations && memleak.group != GroupBy::Thread {
        write_allocations(process, view.site, page)?;
    }
    write_owners(&process.owners, page)?;
    write_sums(process, memleak.group, page)
}

/// `python3 train.py  pid 574 ada  GPU 0 H200  traced 4m12s from its start`.
fn title(process: &ProcessReport, memleak: &Memleak, page: &Page<'_>) -> Vec<String> {
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
fn model(memleak: &Memleak, index: u32) -> String {
    let gpu = memleak.gpus.iter().find(|gpu| gpu.index == index);
    gpu.map_or(String::new(), |gpu| format!(" {}", short_model(&gpu.name)))
}

/// Memory by kind, without kinds that have none.
fn largest_first(process: &ProcessReport) -> Vec<(MemoryKind, Total)> {
    let kinds = process.kinds.0.iter().copied();
    let mut kinds: Vec<_> = kinds.filter(|(_, total)| total.bytes > 0).collect();
    kinds.sort_by_key(|(_, total)| Reverse(total.bytes));
    kinds
}

/// Memory of one kind.
fn of_kind((kind, total): &(MemoryKind, Total)) -> String {
    let besides = match kind.belongs() {
        Belongs::Gpu => "",
        Belongs::Host => " (host)",
        Belongs::Elsewhere => " (not counted)",
    };
    format!("{kind} {}{besides}", size(total.bytes))
}

/// Single allocations by thread, which take as many lines as there are.
fn write_allocations(
    process: &ProcessReport,
    site: Option<u32>,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let found = process.listed().iter();
    let found = site.and_then(|number| found.clone().find(|site| site.has_id(number)));
    let asked = found.map(|site| site.id).or(site);
    let rows = AllocationRow::all(process, 0);
    let rows = rows.filter(|row| asked.is_none() || row.allocation.site == asked);
    page.table(AllocationRow::COLUMNS, &rows.collect::<Vec<_>>(), 0)?;
    let sum = |part: fn(&ThreadReport) -> u64| process.threads.iter().map(part).sum::<u64>();
    let (more, bytes) = (sum(|t| t.omitted_allocations), sum(|t| t.omitted_bytes));
    if more > 0 {
        let more = plural(more, "more allocation");
        page.note(&format!("... {more}, {} (--top all)", size(bytes)))?;
    }
    let filtered = process.threads.iter().filter_map(|thread| thread.filtered);
    let filtered = filtered.map(|left| (left.bytes, left.allocations));
    match filtered.reduce(|(a, b), (c, d)| (a.saturating_add(c), b + d)) {
        Some((bytes, count)) => page.note(&format!("filtered out: {}", amount(bytes, count))),
        None => Ok(()),
    }
}

/// By owner, where one is known.
pub(super) fn write_owners(owners: &[OwnerReport], page: &mut Page<'_>) -> io::Result<()> {
    let held: Vec<_> = owners.iter().filter(|one| one.bytes > 0).collect();
    if held.iter().all(|one| one.owner == UNKNOWN) {
        return Ok(());
    }
    let (shown, others) = held.split_at(held.len().min(MAX_OWNERS));
    let shown = shown.iter();
    let shown = shown.map(|one| format!("{} {}", printable(&one.owner), size(one.bytes)));
    let mut parts: Vec<_> = shown.collect();
    if !others.is_empty() {
        let bytes = others.iter().map(|one| one.bytes);
        let bytes = bytes.fold(0, u64::saturating_add);
        parts.push(format!("{} more {}", others.len(), size(bytes)));
    }
    writeln!(page, "by library: {}", parts.join(", "))
}

/// By kind and by device, where that says more than the total; address space; pools.
fn write_sums(process: &ProcessReport, group: GroupBy, page: &mut Page<'_>) -> io::Result<()> {
    let kinds = largest_first(process);
    let plain = kinds.iter().all(|(kind, _)| *kind == MemoryKind::Device);
    if !plain && group != GroupBy::Kind {
        let kinds: Vec<_> = kinds.iter().map(of_kind).collect();
        writeln!(page, "by kind: {}", kinds.join(", "))?;
    }
    let shares = process.gpus.iter().filter(|share| share.live_bytes > 0);
    let shares = shares.map(|share| {
        let index = share.index.map_or("?".into(), |index| index.to_string());
        format!("GPU {index} {}", size(share.live_bytes))
    });
    let shares: Vec<_> = shares.collect();
    if process.devices.len() > 1 && !shares.is_empty() {
        writeln!(page, "by GPU: {}", shares.join(", "))?;
    }
    if process.reserved_address_bytes > 0 {
        let reserved = size(process.reserved_address_bytes);
        writeln!(page, "address space reserved, no memory: {reserved}")?;
    }
    for pool in &process.pools {
        let Some(reserved) = pool.reserved_bytes else {
            continue;
        };
        let name = pool
            .pool
            .map_or("of the device".into(), |handle| format!("{handle:#x}"));
        let (used, reserved) = (size(pool.used_bytes), size(reserved));
        writeln!(page, "pool {name}: used {used}, reserved {reserved}")?;
    }
    Ok(())
}
