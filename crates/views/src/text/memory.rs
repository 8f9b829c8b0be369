//! Who holds memory, for people: GPUs, processes, and what each process holds.

use std::io::{self, Write};

use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_model::Total;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;

use super::page::Page;
use super::sites::{SiteList, write_tensors};
use crate::tables::memory::{KINDS, ProcessLine, allocations, processes};
use gpuprobe_report::GroupBy;
use gpuprobe_report::lists::{AllocationRow, GpuUsers, gpus};
use gpuprobe_report::memleak::{Memleak, NvmlUsage, ProcessReport};
use gpuprobe_report::owners::{OwnerReport, UNKNOWN};
use gpuprobe_report::words::{age, amount, bar, plural, short_model, signed_size};

/// Ended processes that hold nothing are named up to here.
const MAX_EMPTY: usize = 10;
/// Owners that are named at most.
const MAX_OWNERS: usize = 8;
/// Blocks of the bar of a GPU that is full.
const BAR: usize = 18;

pub(super) fn write(memleak: &Memleak, is_final: bool, page: &mut Page<'_>) -> io::Result<()> {
    if memleak.processes.is_empty() && !memleak.has_calls() {
        return page.head("no memory call and no process that uses CUDA so far");
    }
    write_listed(memleak, is_final, page)?;
    let calls = memleak.calls.iter();
    let mut calls: Vec<_> = calls
        .map(|(symbol, calls)| format!("{calls} {symbol}"))
        .collect();
    if calls.is_empty() {
        calls.push("no allocation".into());
    }
    calls.push(plural(memleak.free_calls, "free"));
    if memleak.failed_calls > 0 {
        calls.push(format!("{} failed", memleak.failed_calls));
    }
    if memleak.unknown_frees > 0 {
        let frees = plural(memleak.unknown_frees, "free");
        calls.push(format!("{frees} of memory from before attach"));
    }
    writeln!(page, "calls: {}", calls.join(", "))?;
    if is_final {
        let (bytes, count) = (memleak.live.live_bytes, memleak.live.live_allocations);
        let tone = if bytes == 0 { Tone::Good } else { Tone::Bad };
        let total = tone.paint(&format!("TOTAL LEAKED: {}", size(bytes)));
        writeln!(
            page,
            "{total}\n{bytes} bytes leaked from {count} cuda memory allocation(s)"
        )?;
    }
    Ok(())
}

/// The processes, without sums of what was called.
pub(super) fn write_listed(
    memleak: &Memleak,
    is_final: bool,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let top = memleak.options.top.unwrap_or(usize::MAX);
    match memleak.options.group() {
        GroupBy::Gpu => write_gpus(memleak, top, page),
        GroupBy::Process => {
            let listed = memleak
                .processes
                .iter()
                .filter(|process| process.is_listed());
            let listed: Vec<ProcessLine<'_>> = listed.map(|process| (process, None)).collect();
            page.head(&plural(listed.len() as u64, "process"))?;
            page.list(processes(), &listed, top, 0)
        }
        _ => write_each(memleak, is_final, page),
    }
}

/// Writes the GPUs, and below each the processes that use it.
fn write_gpus(memleak: &Memleak, top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let gpus = gpus(memleak);
    let living = memleak.processes.iter().filter(|process| !process.exited);
    let known = gpus.iter().filter(|gpu| gpu.index.is_some()).count() as u64;
    let count = plural(living.clone().count() as u64, "process");
    let host = memleak
        .host_name
        .as_deref()
        .map_or(String::new(), |name| printable(name) + "  ");
    page.head(&format!("{host}{}  {count}", plural(known, "GPU")))?;
    for gpu in &gpus {
        writeln!(page, "{}", gpu_line(gpu))?;
        let users: Vec<_> = gpu
            .users
            .iter()
            .map(|(process, share)| (*process, Some(*share)))
            .collect();
        page.list(processes(), &users, top, 2)?;
    }
    let elsewhere = living.filter(|process| process.gpus.is_empty());
    let elsewhere: Vec<_> = elsewhere.map(|process| (process, None)).collect();
    if !elsewhere.is_empty() {
        writeln!(page, "without memory of a GPU")?;
        page.table(processes(), &elsewhere, 2)?;
    }
    Ok(())
}

/// `GPU 0 H200  ███████████████░░░  118.00 GiB of 141.00 GiB used`.
fn gpu_line(gpu: &GpuUsers<'_>) -> String {
    let Some(index) = gpu.index else {
        return "GPU ? (nothing told which)".into();
    };
    let name = gpu
        .memory
        .map_or(String::new(), |gpu| format!(" {}", short_model(&gpu.name)));
    match gpu
        .memory
        .and_then(|gpu| gpu.used_bytes.zip(gpu.total_bytes))
    {
        Some((used, total)) => {
            let full = bar(used as f64 / total.max(1) as f64, BAR);
            let full = full.trim_end_matches(|c| c != '█');
            let bar = format!("{full:░<BAR$}");
            format!(
                "GPU {index}{name}  {bar}  {} of {} used",
                size(used),
                size(total)
            )
        }
        None => format!("GPU {index}{name}  {} traced", size(gpu.live_bytes)),
    }
}

/// Each process with its call sites, kinds or allocations.
fn write_each(memleak: &Memleak, is_final: bool, page: &mut Page<'_>) -> io::Result<()> {
    // What ended and left nothing is told of at the end, shortly.
    let is_empty = |process: &&ProcessReport| !process.is_listed() && process.nvml.is_none();
    let (empty, shown): (Vec<_>, Vec<_>) = memleak.processes.iter().partition(is_empty);
    for process in &shown {
        page.part()?;
        write_process(process, memleak, page)?;
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
        for process in empty.iter().take(MAX_EMPTY) {
            let (title, peak) = (
                process.who().title(process.exited),
                size(process.peak_bytes),
            );
            page.head(&format!("{title}  all freed  (peak {peak})"))?;
        }
        if empty.len() > MAX_EMPTY {
            let more = empty.len() - MAX_EMPTY;
            page.note(&format!("... {more} more ended and left nothing"))?;
        }
    }
    Ok(())
}

/// Writes a process: who it is, what it holds, and where it was allocated.
fn write_process(
    process: &ProcessReport,
    memleak: &Memleak,
    page: &mut Page<'_>,
) -> io::Result<()> {
    page.head(&title(process, memleak, page.is_of_file))?;
    writeln!(page, "{}", held(process, page.is_of_file))?;
    if !process.traced {
        return Ok(());
    }
    let view = &memleak.options.view;
    if view.site.is_none() {
        write_tensors(process, view, usize::MAX, page)?;
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
    let kinds = process.kinds.largest_first();
    let sites = SiteList::new(process);
    match (memleak.options.group(), view.site) {
        (GroupBy::Kind, _) => page.table(KINDS, &kinds, 0)?,
        (GroupBy::Thread, _) => write_allocations(process, None, page)?,
        (_, Some(number)) => sites.write_one(number, view, page)?,
        _ => {
            sites.write(usize::MAX, view, page)?;
            sites.write_rest(page)?;
        }
    }
    if view.allocations && memleak.options.group() != GroupBy::Thread {
        write_allocations(process, view.site, page)?;
    }
    write_owners(&process.owners, page)?;
    let is_plain = kinds.iter().all(|(kind, _)| *kind == MemoryKind::Device);
    if !is_plain && memleak.options.group() != GroupBy::Kind {
        let kinds: Vec<_> = kinds.iter().map(of_kind).collect();
        writeln!(page, "by kind: {}", kinds.join(", "))?;
    }
    let shares = process.gpus.iter().filter(|share| share.live_bytes > 0);
    let shares: Vec<_> = shares
        .map(|share| format!("{} {}", gpu(share.index), size(share.live_bytes)))
        .collect();
    if process.devices.len() > 1 && !shares.is_empty() {
        writeln!(page, "by GPU: {}", shares.join(", "))?;
    }
    Ok(())
}

fn gpu(index: Option<u32>) -> String {
    index.map_or("GPU ?".into(), |index| format!("GPU {index}"))
}

/// `python3 train.py  pid 574 ada  GPU 0 H200  traced 4m12s from its start`.
fn title(process: &ProcessReport, memleak: &Memleak, is_of_file: bool) -> String {
    let mut title = process.who().title(process.exited);
    if let Some(container) = &process.container {
        let id = container.get(..12).unwrap_or(container);
        let inner = process.container_pid;
        let inner = inner.map_or(String::new(), |pid| format!(" (pid {pid})"));
        title += &format!("  container {id}{inner}");
    }
    for share in &process.gpus {
        // Without what all models begin with.
        let known = memleak
            .gpus
            .iter()
            .find(|gpu| Some(gpu.index) == share.index);
        let model = known.map_or(String::new(), |gpu| format!(" {}", short_model(&gpu.name)));
        title += &format!("  {}{model}", gpu(share.index));
    }
    if process.traced && process.traced_seconds > 0.0 && !is_of_file {
        let start = if process.from_start {
            " from its start"
        } else {
            ""
        };
        title += &format!(
            "  traced {}{start}",
            age((process.traced_seconds * 1e9) as u64)
        );
    }
    title
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
    let rows = AllocationRow::of_process(process);
    let rows = rows.filter(|row| asked.is_none() || row.allocation.site == asked);
    page.table(allocations(), &rows.collect::<Vec<_>>(), 0)?;
    let (omitted, filtered) = process.unlisted_allocations();
    page.more(omitted, 0)?;
    match filtered {
        0 => Ok(()),
        filtered => page.note(&format!("filtered out: {}", plural(filtered, "allocation"))),
    }
}

/// By owner, where one is known.
pub(super) fn write_owners(owners: &[OwnerReport], page: &mut Page<'_>) -> io::Result<()> {
    let held = owners.iter().filter(|one| one.bytes > 0);
    if held.clone().all(|one| one.owner == UNKNOWN) {
        return Ok(());
    }
    let shown = held.clone().take(MAX_OWNERS);
    let shown = shown.map(|one| format!("{} {}", printable(&one.owner), size(one.bytes)));
    let shown: Vec<_> = shown.collect();
    let more = match held.count() - shown.len() {
        0 => String::new(),
        more => format!(", {more} more"),
    };
    writeln!(page, "by library: {}{more}", shown.join(", "))
}

/// `held 3.94 GiB in 7 allocations  (peak 4.40 GiB, 31s ago)  + context 532.48 MiB = nvidia-smi 4.46 GiB`.
fn held(process: &ProcessReport, is_of_file: bool) -> String {
    if !process.traced {
        return untraced(process);
    }
    let live = &process.live;
    let what = if process.exited {
        "never freed"
    } else {
        "held"
    };
    let mut said = format!("{what} {}", size(live.live_bytes));
    if live.live_allocations > 0 {
        said += &format!(" in {}", plural(live.live_allocations, "allocation"));
    }
    let mut notes = Vec::new();
    if process.peak_bytes > 0 {
        let ago = process.peak_age_ns.filter(|_| !is_of_file);
        let ago = ago.map_or(String::new(), |ns| format!(", {} ago", age(ns)));
        notes.push(format!("peak {}{ago}", size(process.peak_bytes)));
    }
    if let Some(change) = process.change_bytes.filter(|_| !process.exited) {
        notes.push(format!("change {}", signed_size(change)));
    }
    if !notes.is_empty() {
        said += &format!("  ({})", notes.join("; "));
    }
    if live.host_bytes > 0 {
        let host = amount(live.host_bytes, live.host_allocations);
        said += &format!("  host memory {host}");
    }
    if live.imported_bytes > 0 {
        let imported = amount(live.imported_bytes, live.imported_allocations);
        said += &format!("  memory of others {imported}");
    }
    match (&process.nvml, process.nvml_age_ns) {
        (Some(nvml), None) => said + "  " + &sum(nvml, live.live_bytes),
        (Some(nvml), Some(ns)) => {
            let tracked = nvml.tracked_bytes;
            let sum = sum(nvml, tracked);
            format!("{said}  {} ago: {} {sum}", age(ns), size(tracked))
        }
        (None, _) => said,
    }
}

/// Memory of a process of which nothing was traced.
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

/// Terms added to `held_bytes` to make nvidia-smi's number.
fn sum(nvml: &NvmlUsage, held_bytes: u64) -> String {
    // Managed memory is wherever it is used.
    let managed = held_bytes.saturating_sub(nvml.tracked_bytes);
    let rest = nvml.other_bytes.max(0).unsigned_abs();
    let missing = nvml.other_bytes.min(0).unsigned_abs();
    let context = nvml.context_bytes.unwrap_or(0).min(rest);
    let terms = [
        ("- managed", managed),
        ("- not at a GPU", missing),
        ("+ context", context),
        ("+ before attach or outside CUDA", rest - context),
    ];
    let terms = terms.iter().filter(|(_, bytes)| *bytes > 0);
    let terms: String = terms
        .map(|(what, bytes)| format!("{what} {} ", size(*bytes)))
        .collect();
    format!("{terms}= nvidia-smi {}", size(nvml.used_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terms_add_up_to_the_number_of_nvidia_smi() {
        const GIB: u64 = 1 << 30;
        let nvml = NvmlUsage {
            used_bytes: 7 * GIB,
            tracked_bytes: 5 * GIB,
            other_bytes: 2 * GIB.cast_signed(),
            context_bytes: Some(GIB / 2),
        };
        let expected =
            "+ context 512.00 MiB + before attach or outside CUDA 1.50 GiB = nvidia-smi 7.00 GiB";
        assert_eq!(sum(&nvml, nvml.tracked_bytes), expected);
        let nvml = NvmlUsage {
            used_bytes: 10 << 20,
            tracked_bytes: 12 << 20,
            other_bytes: -(2 << 20),
            context_bytes: None,
        };
        let expected = "- managed 8.00 MiB - not at a GPU 2.00 MiB = nvidia-smi 10.00 MiB";
        assert_eq!(sum(&nvml, 20 << 20), expected);
    }
}
