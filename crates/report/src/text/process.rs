//! A process and the call sites at which it holds memory, for people.

use std::io::{self, Write};

use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};
use gpuprobe_stacks::allocators::down_to_start;
use gpuprobe_stacks::cuda;

use super::page::{Page, Who, age, amount, bar, short_age, short_size, signed_size};
use super::table::{Column, Table, plural};
use crate::memleak::{LeftOut, Live, Memleak, Nvml, PoolReport, ProcessReport, SiteReport};
use crate::{Group, names};

impl ProcessReport {
    pub(crate) fn who(&self) -> Who<'_> {
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
    let sites = process.listed();
    match (memleak.group, memleak.view.site) {
        (Group::Kind, _) => write_kinds(process, page, out)?,
        (_, Some(number)) => {
            let found = sites.iter().filter(|site| site.id == number);
            let mut is_there = false;
            for site in found {
                is_there = true;
                write_details(site, process, page, out)?;
            }
            if !is_there {
                writeln!(out, "nothing is live at site {number}")?;
            }
        }
        _ => write_sites(process, sites, memleak, page, out)?,
    }
    if memleak.view.allocations {
        write_allocations(process, memleak, page, out)?;
    }
    write_sums(process, memleak.group, out)?;
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

/// `H200` of `NVIDIA H200`.
pub(super) fn short_model(name: &str) -> String {
    let name = printable(name);
    let name = name.trim_start_matches("NVIDIA ");
    name.trim_start_matches("GeForce ").to_owned()
}

/// `held 3.94 GiB  (peak 4.40 GiB, 31s ago)  + context 0.52 = nvidia-smi 4.46 GiB`.
fn write_held(process: &ProcessReport, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    if !process.traced {
        return writeln!(out, "{}", untraced(process));
    }
    let live = &process.live;
    let what = if process.exited {
        "never freed"
    } else {
        "held"
    };
    let mut parts = vec![format!("{what} {}", size(live.live_bytes))];
    if live.live_allocations > 0 {
        let count = plural(live.live_allocations, "allocation");
        parts[0] += &format!(" in {count}");
    }
    let mut notes = Vec::new();
    if process.peak_bytes > 0 {
        let ago = process.peak_age_ns.filter(|_| !page.is_of_file);
        let ago = ago.map_or(String::new(), |ns| format!(", {} ago", age(ns)));
        notes.push(format!("peak {}{ago}", size(process.peak_bytes)));
    }
    if let Some(change) = process.change_bytes.filter(|_| !process.exited) {
        notes.push(format!("change {}", signed_size(change)));
    }
    if !notes.is_empty() {
        parts.push(format!("({})", notes.join("; ")));
    }
    parts.extend(besides(live));
    match (&process.nvml, process.nvml_age_ns) {
        (Some(nvml), None) => parts.push(sum(nvml, live.live_bytes)),
        (Some(nvml), Some(ns)) => {
            let (ago, tracked) = (age(ns), size(nvml.tracked_bytes));
            parts.push(format!(
                "{ago} ago: {tracked} {}",
                sum(nvml, nvml.tracked_bytes)
            ));
        }
        (None, _) => {}
    }
    page.words(&parts, "  ", out)
}

/// What a process holds of which nothing was traced.
fn untraced(process: &ProcessReport) -> String {
    let Some(nvml) = &process.nvml else {
        return "0 traced since attach; CUDA is loaded".into();
    };
    let context = nvml.context_bytes.map_or(String::new(), |bytes| {
        format!(", of it context about {}", size(bytes))
    });
    let held = size(nvml.used_bytes);
    format!("{held} held (nvidia-smi), 0 traced since attach{context}")
}

/// Memory that takes nothing of a GPU of its own.
fn besides(live: &Live) -> impl Iterator<Item = String> + use<> {
    let parts = [
        (live.host_bytes, live.host_allocations, "host memory"),
        (
            live.imported_bytes,
            live.imported_allocations,
            "memory of others",
        ),
    ];
    let there = parts
        .into_iter()
        .filter(|(_, allocations, _)| *allocations > 0);
    there.map(|(bytes, allocations, what)| format!("{what} {}", amount(bytes, allocations)))
}

/// What is added to `held_bytes` to make nvidia-smi's number, which adds up as it is written, whatever
/// rounding does.
fn sum(nvml: &Nvml, held_bytes: u64) -> String {
    let unit = Unit::of(nvml.used_bytes);
    let hundredths = |bytes| unit.hundredths(bytes);
    let used = hundredths(nvml.used_bytes);
    let tracked = hundredths(nvml.tracked_bytes);
    let mut parts = Vec::new();
    // Managed memory is wherever it is used.
    if held_bytes > nvml.tracked_bytes {
        let managed = held_bytes - nvml.tracked_bytes;
        parts.push(format!("- managed {}", size(managed)));
    }
    let rest = used.abs_diff(tracked);
    if nvml.other_bytes < 0 {
        parts.push(format!("- not at a GPU {}", unit.text(rest)));
    } else {
        let context = nvml.context_bytes.map_or(0, hundredths).min(rest);
        if context > 0 {
            parts.push(format!("+ context {}", unit.text(context)));
        }
        if context < rest || context == 0 {
            let rest = unit.text(rest - context);
            parts.push(format!("+ before attach or outside CUDA {rest}"));
        }
    }
    format!("{} = nvidia-smi {}", parts.join(" "), unit.text(used))
}

/// One unit for all numbers of a line.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    bytes: u64,
    name: &'static str,
}

impl Unit {
    pub(super) fn of(largest: u64) -> Self {
        if largest >= 1 << 30 {
            let (bytes, name) = (1 << 30, "GiB");
            Self { bytes, name }
        } else {
            let (bytes, name) = (1 << 20, "MiB");
            Self { bytes, name }
        }
    }

    /// Rounded to hundredths of the unit.
    pub(super) fn hundredths(self, bytes: u64) -> u64 {
        let unit = u128::from(self.bytes);
        let hundredths = (u128::from(bytes) * 100 + unit / 2) / unit;
        u64::try_from(hundredths).unwrap_or(u64::MAX)
    }

    pub(super) fn text(self, hundredths: u64) -> String {
        let (whole, part) = (hundredths / 100, hundredths % 100);
        format!("{whole}.{part:02} {}", self.name)
    }
}

/// Blocks of the bar of a site that holds everything.
const BAR: usize = 10;

fn write_sites(
    process: &ProcessReport,
    sites: &[SiteReport],
    memleak: &Memleak,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let table = site_table(process, sites, true);
    if memleak.view.stacks_shown {
        // Each row is followed by its stack.
        let lines = table.lines(page.columns);
        for (index, line) in lines.iter().enumerate() {
            writeln!(out, "{line}")?;
            if let Some(site) = index.checked_sub(1).and_then(|row| sites.get(row)) {
                write_stack(site, page, out)?;
            }
        }
    } else {
        table.write(page.columns, out)?;
    }
    write_rest(process, sites, out)
}

/// The table of call sites.
pub(super) fn site_table(process: &ProcessReport, sites: &[SiteReport], with_via: bool) -> Table {
    let held = if process.exited {
        "NEVER FREED"
    } else {
        "HELD"
    };
    let columns = [
        Column::right("#"),
        Column::right(held),
        Column::right("%HELD"),
        Column::left("").needs_width(110),
        Column::right("CHANGE"),
        Column::right("PEAK").needs_width(110),
        Column::right("N"),
        Column::right("AGE"),
        Column::left("KIND"),
        Column::text("WHERE"),
        Column::text("VIA").needs_width(100),
    ];
    let mut table = Table::new(0, &columns);
    let all = process.live.live_bytes;
    let plain = sites.iter().all(|site| site.kinds == [MemoryKind::Device]);
    for site in sites {
        // Where a program gives sizes that do not add up, no part is more than all.
        let share = (site.live.live_bytes as f64 / all.max(1) as f64).min(1.0);
        let of_gpu = site.live.live_bytes > 0;
        let (oldest, newest) = (short_age(site.ages_ns.0), short_age(site.ages_ns.1));
        let kinds: Vec<_> = site.kinds.iter().map(|kind| kind.name()).collect();
        table.row([
            site.id.to_string(),
            size(site.live.bytes()),
            if of_gpu {
                per_cent(share)
            } else {
                String::new()
            },
            if of_gpu {
                bar(share, BAR)
            } else {
                String::new()
            },
            site.change_bytes
                .filter(|_| !process.exited)
                .map_or(String::new(), signed_size),
            short_size(site.peak_bytes),
            site.live.allocations().to_string(),
            if oldest == newest {
                oldest
            } else {
                format!("{oldest}..{newest}")
            },
            if plain {
                String::new()
            } else {
                kinds.join("+")
            },
            printable(&site.label),
            if with_via {
                printable(&site.via)
            } else {
                String::new()
            },
        ]);
    }
    table
}

/// `38` of 0.38; of less than half a per cent, `<1`.
pub(crate) fn per_cent(share: f64) -> String {
    if share > 0.0 && share < 0.005 {
        "<1".into()
    } else {
        format!("{:.0}", share * 100.0)
    }
}

/// What of a process's sites is not listed, and how to see it.
fn write_rest(
    process: &ProcessReport,
    sites: &[SiteReport],
    out: &mut dyn Write,
) -> io::Result<()> {
    if let Some(LeftOut {
        sites: more,
        allocations,
        bytes,
    }) = process.omitted
    {
        let (more, bytes) = (plural(more, "more site"), size(bytes));
        let allocations = plural(allocations, "allocation");
        writeln!(out, "... {more}, {bytes} in {allocations} (--top all)")?;
    }
    if let Some(filtered) = &process.filtered {
        let listed = sites.len() as u64;
        let all = listed + process.omitted.map_or(0, |left| left.sites) + filtered.sites;
        let all = plural(all, "site");
        let rest = amount(filtered.bytes, filtered.allocations);
        writeln!(out, "{listed} of {all} shown; filtered out: {rest}")?;
    }
    Ok(())
}

/// Everything about one site.
fn write_details(
    site: &SiteReport,
    process: &ProcessReport,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    site_table(process, std::slice::from_ref(site), true).write(page.columns, out)?;
    let SiteReport {
        alloc_bytes,
        alloc_calls,
        freed_bytes,
        free_calls,
        ..
    } = *site;
    let parts = [
        format!("   allocated {}", amount(alloc_bytes, alloc_calls)),
        format!("freed {}", amount(freed_bytes, free_calls)),
        format!("peak {}", size(site.peak_bytes)),
    ];
    page.list(&parts, "   ", out)?;
    write_stack(site, page, out)
}

/// Columns in front of a frame.
const FRAME_INDENT: usize = 6;

fn write_stack(site: &SiteReport, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    if site.stack.is_empty() && site.omitted_frames == 0 {
        return writeln!(out, "      (no call stack)");
    }
    let shown = down_to_start(&site.stack, |frame| &frame.function);
    let frames = &site.stack[..shown];
    let lines: Vec<_> = frames.iter().map(frame_line).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let room = page
        .columns
        .map(|columns| columns.saturating_sub(FRAME_INDENT).max(24));
    for line in names::cut(&lines, room) {
        writeln!(out, "      {line}")?;
    }
    if site.omitted_frames > 0 {
        writeln!(
            out,
            "      ... {}",
            plural(site.omitted_frames, "more frame")
        )?;
    } else if !site.complete && shown == site.stack.len() {
        writeln!(out, "      ... what called this is not known")?;
    }
    Ok(())
}

/// `function  file:line  (module) [inlined]`
pub(super) fn frame_line(frame: &Frame) -> String {
    let mut line = printable(&names::simplify(&frame.function));
    if let Some(file) = &frame.file {
        line += &format!("  {}", printable(file));
        if let Some(number) = frame.line {
            line += &format!(":{number}");
        }
    }
    line += &format!("  ({})", printable(cuda::file_name(&frame.module)));
    if frame.inlined {
        line += " [inlined]";
    }
    line
}

fn write_kinds(process: &ProcessReport, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    let columns = [
        Column::right("HELD"),
        Column::right("N"),
        Column::left("OF"),
        Column::text("KIND"),
    ];
    let mut table = Table::new(0, &columns);
    for (kind, total) in &process.kinds.0 {
        table.row([
            size(total.bytes),
            total.allocations.to_string(),
            owner(*kind).into(),
            kind.to_string(),
        ]);
    }
    table.write(page.columns, out)
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
    let mut table = Table::new(0, &columns);
    let mut omitted = 0;
    for thread in &process.threads {
        let is_asked = |site: Option<u32>| memleak.view.site.is_none() || site == memleak.view.site;
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
        more => writeln!(out, "... {} (--top all)", plural(more, "more allocation")),
    }
}

/// By kind and by device, where that says more than the total.
fn write_sums(process: &ProcessReport, group: Group, out: &mut dyn Write) -> io::Result<()> {
    let kinds = &process.kinds.0;
    let plain = kinds.iter().all(|(kind, _)| *kind == MemoryKind::Device);
    if !plain && group != Group::Kind {
        let one = |(kind, total): &(MemoryKind, _)| {
            let gpuprobe_engine::totals::Total { bytes, .. } = *total;
            let besides = match kind.belongs() {
                Belongs::Gpu => "",
                Belongs::Host => " (host)",
                Belongs::Elsewhere => " (not counted)",
            };
            format!("{kind} {}{besides}", size(bytes))
        };
        let kinds: Vec<_> = kinds.iter().map(one).collect();
        writeln!(out, "by kind: {}", kinds.join(", "))?;
    }
    if process.devices.len() > 1 {
        let shares = process.gpus.iter().filter(|share| share.live_bytes > 0);
        let shares: Vec<_> = shares
            .map(|share| {
                let index = share.index.map_or("?".into(), |index| index.to_string());
                format!("GPU {index} {}", size(share.live_bytes))
            })
            .collect();
        writeln!(out, "by GPU: {}", shares.join(", "))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_line_adds_up_as_it_is_written() {
        let nvml = Nvml {
            used_bytes: 7 * GIB,
            tracked_bytes: 5 * GIB + GIB / 8,
            other_bytes: 2 * (GIB as i64) - (GIB / 8) as i64,
            context_bytes: Some(GIB / 2),
        };
        assert_eq!(
            sum(&nvml, nvml.tracked_bytes),
            "+ context 0.50 GiB + before attach or outside CUDA 1.37 GiB = nvidia-smi 7.00 GiB"
        );
    }

    #[test]
    fn more_tracked_than_used_is_said_too() {
        let nvml = Nvml {
            used_bytes: 10 << 20,
            tracked_bytes: 12 << 20,
            other_bytes: -(2 << 20),
            context_bytes: None,
        };
        assert_eq!(
            sum(&nvml, 12 << 20),
            "- not at a GPU 2.00 MiB = nvidia-smi 10.00 MiB"
        );
        let managed = sum(&nvml, 20 << 20);
        assert!(managed.starts_with("- managed 8.00 MiB"), "{managed}");
    }
}
