//! Who holds memory, for people.

use std::io::{self, Write};

use super::page::Page;
use super::{classic, host, process};
use crate::GroupBy;
use crate::memleak::{Memleak, ProcessReport};
use crate::words::{amount, dim, plural};
use gpuprobe_model::text::size;
use gpuprobe_os::color::Tone;

/// Ended processes that hold nothing are named up to here.
const MAX_EMPTY: usize = 10;

pub(super) fn write(
    memleak: &Memleak,
    is_final: bool,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    if memleak.group == GroupBy::Thread {
        return classic::write(memleak, page, out);
    }
    if memleak.processes.is_empty() && !memleak.has_calls() {
        page.head("no memory call and no process that uses CUDA so far", out)?;
        return Ok(());
    }
    match memleak.group {
        GroupBy::Gpu => host::write_gpus(memleak, memleak.top, page, out)?,
        GroupBy::Process => host::write_processes(memleak, memleak.top, page, out)?,
        GroupBy::Stack | GroupBy::NativeStack | GroupBy::Kind | GroupBy::Thread => {
            write_each(memleak, is_final, page, out)?;
        }
    }
    write_calls(memleak, page, out)?;
    if is_final {
        let live = &memleak.live;
        let total = format!("TOTAL LEAKED: {}", size(live.live_bytes));
        let tone = match live.live_bytes {
            0 => Tone::Good,
            _ => Tone::Bad,
        };
        writeln!(out, "{}", tone.paint(&total))?;
        let (bytes, count) = (live.live_bytes, live.live_allocations);
        writeln!(
            out,
            "{bytes} bytes leaked from {count} cuda memory allocation(s)"
        )?;
    }
    Ok(())
}

/// The same of a file, without sums of what was called.
pub(super) fn write_listed(memleak: &Memleak, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    match memleak.group {
        GroupBy::Thread => classic::write_processes(memleak, out),
        GroupBy::Gpu => host::write_gpus(memleak, memleak.top, page, out),
        GroupBy::Process => host::write_processes(memleak, memleak.top, page, out),
        GroupBy::Stack | GroupBy::NativeStack | GroupBy::Kind => {
            write_each(memleak, false, page, out)
        }
    }
}

/// Each process with its call sites or kinds.
fn write_each(
    memleak: &Memleak,
    is_final: bool,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    // What ended and left nothing is told of at the end, shortly.
    let is_empty = |process: &&ProcessReport| {
        process.exited && process.live.is_empty() && process.nvml.is_none()
    };
    let (empty, shown): (Vec<_>, Vec<_>) = memleak.processes.iter().partition(|p| is_empty(p));
    for (index, process) in shown.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        process::write(process, memleak, page, out)?;
    }
    let living = shown
        .iter()
        .filter(|process| !process.exited && process.traced)
        .count() as u64;
    if living > 1 {
        let live = &memleak.live;
        let held = amount(live.live_bytes, live.live_allocations);
        writeln!(out, "\nheld together {held}")?;
    }
    if is_final {
        for process in empty.iter().take(MAX_EMPTY) {
            let peak = size(process.peak_bytes);
            page.head(
                &format!("{}  all freed  (peak {peak})", process.who().title()),
                out,
            )?;
        }
        if let Some(more) = empty.len().checked_sub(MAX_EMPTY).filter(|&more| more > 0) {
            let more = format!("... {more} more ended and left nothing");
            writeln!(out, "{}", dim(&more))?;
        }
    }
    Ok(())
}

/// Writes the numbers of calls by function.
fn write_calls(memleak: &Memleak, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    let calls = memleak.calls.iter();
    let mut parts: Vec<_> = calls
        .map(|(symbol, calls)| format!("{calls} {symbol}"))
        .collect();
    if parts.is_empty() {
        parts.push("no allocation".into());
    }
    parts.push(plural(memleak.free_calls, "free"));
    if memleak.failed_calls > 0 {
        parts.push(format!("{} failed", memleak.failed_calls));
    }
    if memleak.unknown_frees > 0 {
        let frees = plural(memleak.unknown_frees, "free");
        parts.push(format!("{frees} of memory from before attach"));
    }
    parts[0] = format!("calls: {}", parts[0]);
    page.list(&parts, "  ", out)
}
