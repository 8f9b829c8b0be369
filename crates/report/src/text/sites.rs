//! Call sites and their stacks, for people.

use std::io::{self, Write};

use gpuprobe_cuda::MemoryKind;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};
use gpuprobe_stacks::allocators::down_to_start;
use gpuprobe_stacks::cuda;

use super::page::{Page, amount, bar, short_age, short_size, signed_size};
use super::table::{Column, Table, plural};
use crate::memleak::{LeftOut, Memleak, ProcessReport, SiteReport};
use crate::names;

/// Blocks of the bar of a site that holds everything.
const BAR: usize = 10;

pub(super) fn write_sites(
    process: &ProcessReport,
    sites: &[SiteReport],
    memleak: &Memleak,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let table = site_table(process, sites);
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
fn site_table(process: &ProcessReport, sites: &[SiteReport]) -> Table {
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
            printable(&site.via),
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
pub(super) fn write_details(
    site: &SiteReport,
    process: &ProcessReport,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    site_table(process, std::slice::from_ref(site)).write(page.columns, out)?;
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
fn frame_line(frame: &Frame) -> String {
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
