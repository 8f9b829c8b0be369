//! Who holds memory, for people.

use std::io::{self, Write};

use super::page::Page;
use super::{host, process};
use crate::GroupBy;
use crate::memleak::{Memleak, ProcessReport};
use crate::words::{amount, plural};
use gpuprobe_model::text::size;
use gpuprobe_os::color::Tone;

/// Ended processes that hold nothing are named up to here.
const MAX_EMPTY: usize = 10;

pub(super) fn write(memleak: &Memleak, is_final: bool, page: &mut Page<'_>) -> io::Result<()> {
    if memleak.processes.is_empty() && !memleak.has_calls() {
        return page.head("no memory call and no process that uses CUDA so far");
    }
    write_listed(memleak, is_final, page)?;
    write_calls(memleak, page)?;
    if is_final {
        let (bytes, count) = (memleak.live.live_bytes, memleak.live.live_allocations);
        let tone = if bytes == 0 { Tone::Good } else { Tone::Bad };
        let total = format!("TOTAL LEAKED: {}", size(bytes));
        writeln!(page, "{}", tone.paint(&total))?;
        let leaked = format!("{bytes} bytes leaked from {count} cuda memory allocation(s)");
        writeln!(page, "{leaked}")?;
    }
    Ok(())
}

/// The processes, without sums of what was called.
pub(super) fn write_listed(
    memleak: &Memleak,
    is_final: bool,
    page: &mut Page<'_>,
) -> io::Result<()> {
    match memleak.group {
        GroupBy::Gpu => host::write_gpus(memleak, page),
        GroupBy::Process => host::write_processes(memleak, page),
        GroupBy::Stack | GroupBy::NativeStack | GroupBy::Kind | GroupBy::Thread => {
            write_each(memleak, is_final, page)
        }
    }
}

/// Each process with its call sites, kinds or allocations.
fn write_each(memleak: &Memleak, is_final: bool, page: &mut Page<'_>) -> io::Result<()> {
    // What ended and left nothing is told of at the end, shortly.
    let is_empty = |process: &&ProcessReport| {
        process.exited && process.live.is_empty() && process.nvml.is_none()
    };
    let (empty, shown): (Vec<_>, Vec<_>) = memleak.processes.iter().partition(|p| is_empty(p));
    for (index, process) in shown.iter().enumerate() {
        if index > 0 {
            writeln!(page)?;
        }
        process::write(process, memleak, page)?;
    }
    let living = shown
        .iter()
        .filter(|process| !process.exited && process.traced);
    if living.count() > 1 {
        let live = &memleak.live;
        let held = amount(live.live_bytes, live.live_allocations);
        writeln!(page, "\nheld together {held}")?;
    }
    if is_final {
        let (named, more) = empty.split_at(empty.len().min(MAX_EMPTY));
        for process in named {
            let (title, peak) = (process.who().title(), size(process.peak_bytes));
            page.head(&format!("{title}  all freed  (peak {peak})"))?;
        }
        if !more.is_empty() {
            page.note(&format!("... {} more ended and left nothing", more.len()))?;
        }
    }
    Ok(())
}

/// Writes the numbers of calls by function.
fn write_calls(memleak: &Memleak, page: &mut Page<'_>) -> io::Result<()> {
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
    writeln!(page, "calls: {}", parts.join(", "))
}
