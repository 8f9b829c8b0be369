//! Who holds memory, for people: GPUs, processes, and what each process holds.

use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_model::Total;
use gpuprobe_model::text::{printable, size};

use super::page::{Page, commas, counts};
use super::sites::{SiteList, write_tensors};
use crate::tables::memory::{KINDS, ProcessLine, allocations, processes};
use gpuprobe_report::lists::{AllocationRow, GpuUsers, gpus};
use gpuprobe_report::memleak::{Memleak, NvmlUsage, ProcessReport};
use gpuprobe_report::names::cut;
use gpuprobe_report::owners::{OwnerReport, UNKNOWN};
use gpuprobe_report::words::{age, amount, bar, plural, signed_size};
use gpuprobe_report::{GroupBy, SiteNumber};

/// Ended processes that hold nothing are named up to here.
const MAX_EMPTY: usize = 10;
/// Owners, and processes that hold nothing, that are named at most.
const MAX_OWNERS: usize = 8;
/// Columns of a command in a list of names.
const NAME: usize = 40;
/// Objects of one line from which on they are worth a line.
const MANY: u64 = 8;
/// Blocks of the bar of a GPU that is full.
const BAR: usize = 18;

pub(super) fn write(memleak: &Memleak, is_final: bool, page: &mut Page) {
    if memleak.is_empty() {
        return page.head("no CUDA activity yet");
    }
    write_listed(memleak, is_final, page);
    let calls = memleak.calls.iter();
    let calls: Vec<_> = calls.map(|(symbol, calls)| (*calls, &**symbol)).collect();
    let mut calls = counts(&calls);
    if calls.is_empty() {
        calls.push("no allocation".into());
    }
    calls.push(plural(memleak.free_calls, "free"));
    calls.extend(counts(&[
        (memleak.unknown_frees, "of earlier allocations"),
        (memleak.failed_calls, "failed"),
    ]));
    page.line(format!("calls: {}", commas(calls)));
    if is_final && memleak.processes.len() > 1 {
        let sums = [(false, "still held"), (true, "never freed")].map(|(exited, what)| {
            let mut live = Total::default();
            let all = memleak.processes.iter();
            all.filter(|one| one.exited == exited)
                .for_each(|one| live.merge(one.live.gpu));
            (live, what)
        });
        let sums = sums.iter().filter(|(live, _)| live.allocations > 0);
        let sums = commas(
            sums.map(|(live, what)| format!("{what} {}", amount(live.bytes, live.allocations))),
        );
        if !sums.is_empty() {
            page.line(format!("in all: {sums}"));
        }
    }
}

/// The processes, without sums of what was called.
pub(super) fn write_listed(memleak: &Memleak, is_final: bool, page: &mut Page) {
    let top = memleak.options.top.unwrap_or(usize::MAX);
    match memleak.options.group() {
        GroupBy::Gpu => write_gpus(memleak, top, page),
        GroupBy::Process => {
            let all = memleak.processes.iter();
            let listed = all.filter(|process| process.is_listed());
            let listed: Vec<ProcessLine<'_>> = listed.map(|process| (process, None)).collect();
            page.head(&plural(listed.len() as u64, "process"));
            page.list(processes(), &listed, top, 0);
        }
        _ => write_each(memleak, is_final, page),
    }
}

/// Writes the GPUs, and below each the processes that use it.
fn write_gpus(memleak: &Memleak, top: usize, page: &mut Page) {
    let gpus = gpus(memleak);
    let living = memleak.processes.iter().filter(|process| !process.exited);
    let known = gpus.iter().filter(|gpu| gpu.index.is_some()).count() as u64;
    let count = plural(living.clone().count() as u64, "process");
    let host = memleak.host_name.as_deref();
    let host = host.map_or(String::new(), |name| printable(name) + "  ");
    page.head(&format!("{host}{}  {count}", plural(known, "GPU")));
    for gpu in &gpus {
        page.line(gpu_line(gpu));
        let users = gpu.users.iter();
        let users = users.map(|(process, share)| (*process, Some(*share)));
        page.list(processes(), &users.collect::<Vec<_>>(), top, 2);
    }
    let elsewhere = living.filter(|process| process.gpus.is_empty());
    let (idle, elsewhere): (Vec<_>, Vec<_>) =
        elsewhere.partition(|process| process.live.is_empty());
    if !elsewhere.is_empty() {
        page.line("with host memory only");
        let elsewhere = elsewhere.into_iter().map(|process| (process, None));
        page.table(processes(), &elsewhere.collect::<Vec<_>>(), 2);
    }
    if !idle.is_empty() {
        let more = idle.len().saturating_sub(MAX_OWNERS) as u64;
        let name = |process: &&ProcessReport| {
            let program = cut(&printable(&process.program()), NAME);
            format!("{program} ({})", process.who.pid)
        };
        let named = idle.iter().take(MAX_OWNERS).map(name);
        let named = commas(named.chain(counts(&[(more, "more")])));
        page.note(format!("without GPU memory: {named}"));
    }
}

/// `GPU 0 H200  ███████████████░░░  118.00 GiB of 141.00 GiB used`.
pub(crate) fn gpu_line(gpu: &GpuUsers<'_>) -> String {
    if gpu.index.is_none() {
        return "GPU unknown".into();
    }
    let name = super::gpu(gpu.index, gpu.memory.map(|gpu| &*gpu.name));
    let memory = gpu.memory;
    let memory = memory.and_then(|gpu| gpu.used_bytes.zip(gpu.total_bytes));
    let Some((used, total)) = memory else {
        return format!("{name}  {} traced", size(gpu.live_bytes));
    };
    let full = bar(used as f64 / total.max(1) as f64, BAR);
    let full = full.trim_end_matches(|c| c != '█');
    let (used, total) = (size(used), size(total));
    format!("{name}  {full:░<BAR$}  {used} of {total} used")
}

/// Each process with its call sites, kinds or allocations.
fn write_each(memleak: &Memleak, is_final: bool, page: &mut Page) {
    // What ended and left nothing is told of at the end, shortly.
    let is_empty = |process: &&ProcessReport| !process.is_listed() && process.nvml.is_none();
    let (empty, shown): (Vec<_>, Vec<_>) = memleak.processes.iter().partition(is_empty);
    for process in &shown {
        page.part();
        write_process(process, memleak, page);
    }
    if is_final && !empty.is_empty() {
        page.head("all freed");
        let empty: Vec<_> = empty.into_iter().map(|process| (process, None)).collect();
        page.list(processes(), &empty, MAX_EMPTY, 0);
    }
}

/// Writes a process: who it is, what it holds, and where it was allocated.
fn write_process(process: &ProcessReport, memleak: &Memleak, page: &mut Page) {
    page.head(&title(process, memleak, page.is_of_file));
    page.line(held(process, page.is_of_file));
    if let Some(ms) = process.traced_from_ms {
        page.line(format!("traced from {ms} ms after its start"));
    }
    if !process.traced {
        return;
    }
    let view = &memleak.options.view;
    let site = match view.site {
        Some(SiteNumber::Cuda(number)) => Some(number),
        _ => None,
    };
    if site.is_none() {
        write_tensors(process, view, usize::MAX, page);
        if view.site.is_some() {
            return;
        }
        if !process.allocators.is_empty() && !process.listed().is_empty() {
            page.line("memory from CUDA, with these in it:");
        }
    }
    for name in &process.frameworks_not_recorded {
        page.line(format!(
            "blocks of {name} not recorded: most don't fit the memory from CUDA; gpuprobe may not know this release"
        ));
    }
    for name in &process.framework_pools {
        page.line(format!(
            "{name} pools its memory: below is what made the pool grow"
        ));
    }
    let kinds = process.kinds.largest_first();
    let sites = SiteList::new(process, view);
    match (memleak.options.group(), site) {
        (GroupBy::Kind, _) => page.table(KINDS, &kinds, 0),
        (GroupBy::Thread, _) => write_allocations(process, None, page),
        (_, Some(number)) => sites.write_one(number, page),
        _ => {
            sites.write(usize::MAX, page);
            sites.write_rest(page);
        }
    }
    if view.allocations && memleak.options.group() != GroupBy::Thread {
        write_allocations(process, site, page);
    }
    // With a single owner it is what the heading says.
    let owners = process.owners.iter().filter(|one| one.live.bytes > 0);
    if page.layout.verbose || owners.count() > 1 {
        write_owners(&process.owners, page);
    }
    let many = process.handles.iter().filter(|one| one.live >= MANY);
    many.take(MAX_OWNERS).for_each(|one| page.line(one.said()));
    let is_plain = kinds.iter().all(|(kind, _)| *kind == MemoryKind::Device);
    if !is_plain && memleak.options.group() != GroupBy::Kind {
        page.line(format!("by kind: {}", commas(kinds.iter().map(of_kind))));
    }
    if process.devices.len() > 1 {
        let gpus = process.gpus.iter();
        let gpus = gpus.map(|one| (super::gpu(one.index, None), size(one.live_bytes)));
        let gpus = commas(gpus.map(|(gpu, bytes)| format!("{gpu} {bytes}")));
        page.line(format!("by GPU: {gpus}"));
    }
}

/// `python3 train.py  pid 574 ada  GPU 0 H200  traced 4m12s from its start`.
fn title(process: &ProcessReport, memleak: &Memleak, is_of_file: bool) -> String {
    let mut title = process.title();
    if let Some(container) = &process.container {
        let id = container.get(..12).unwrap_or(container);
        let inner = process.container_pid;
        let inner = inner.map_or(String::new(), |pid| format!(" (pid {pid})"));
        title += &format!("  container {id}{inner}");
    }
    for share in &process.gpus {
        let mut gpus = memleak.gpus.iter();
        let known = gpus.find(|gpu| Some(gpu.index) == share.index);
        title += &format!("  {}", super::gpu(share.index, known.map(|gpu| &*gpu.name)));
    }
    if process.traced && process.traced_seconds > 0.0 && !is_of_file {
        let start = ["", " from its start"][usize::from(process.from_start)];
        let traced = age((process.traced_seconds * 1e9) as u64);
        title += &format!("  traced {traced}{start}");
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
pub(super) fn write_allocations(process: &ProcessReport, site: Option<u32>, page: &mut Page) {
    let found = process.listed().iter();
    let found = site.and_then(|number| found.clone().find(|site| site.has_id(number)));
    let asked = found.map(|site| site.id).or(site);
    let rows = AllocationRow::of_process(process);
    let rows = rows.filter(|row| asked.is_none() || row.allocation.site == asked);
    page.table(allocations(), &rows.collect::<Vec<_>>(), 0);
    let (omitted, filtered) = process.unlisted_allocations();
    page.more(omitted, 0);
    if filtered > 0 {
        page.note(format!("filtered out: {}", plural(filtered, "allocation")));
    }
}

/// By owner, where one is known.
pub(super) fn write_owners(all: &[OwnerReport], page: &mut Page) {
    let owners = owners(all);
    if !owners.is_empty() {
        page.line(format!("by library: {owners}"));
    }
}

/// `libtorch 2.00 GiB, libcublas 64.00 MiB, 2 more`; empty if no owner is known.
pub(super) fn owners(all: &[OwnerReport]) -> String {
    let held = all.iter().filter(|one| one.live.bytes > 0);
    if held.clone().all(|one| one.owner == UNKNOWN) {
        return String::new();
    }
    let named = held.clone().take(MAX_OWNERS);
    let named = named.map(|one| format!("{} {}", printable(&one.owner), size(one.live.bytes)));
    let more = (held.count() as u64).saturating_sub(MAX_OWNERS as u64);
    commas(named.chain(counts(&[(more, "more")])))
}

/// `held 3.94 GiB in 7 allocations  (peak 4.40 GiB, 31s ago)  + context 532.48 MiB = nvidia-smi 4.46 GiB`.
fn held(process: &ProcessReport, is_of_file: bool) -> String {
    if !process.traced {
        return untraced(process);
    }
    let live = &process.live;
    let what = ["held", "never freed"][usize::from(process.exited)];
    let mut said = format!("{what} {}", size(live.gpu.bytes));
    if live.gpu.allocations > 0 {
        said += &format!(" in {}", plural(live.gpu.allocations, "allocation"));
    }
    let peak = Some(process.peak_bytes).filter(|peak| *peak > live.gpu.bytes);
    let ago = process.peak_age_ns.filter(|_| !is_of_file);
    let ago = ago.map_or(String::new(), |ns| format!(", {} ago", age(ns)));
    let peak = peak.map(|peak| format!("peak {}{ago}", size(peak)));
    let change = process
        .change_bytes
        .filter(|_| !process.exited && process.peak_bytes > 0);
    let change = change.map(|by| format!("change {}", signed_size(by)));
    let both: Vec<_> = peak.into_iter().chain(change).collect();
    if !both.is_empty() {
        said += &format!("  ({})", both.join("; "));
    }
    if let Some(moved) = process.checkpointed {
        let moved = amount(moved.bytes, moved.allocations);
        said += &format!("  checkpointed to host memory {moved}");
    }
    if live.host.bytes > 0 {
        let host = amount(live.host.bytes, live.host.allocations);
        said += &format!("  host memory {host}");
    }
    if live.imported.bytes > 0 {
        let imported = amount(live.imported.bytes, live.imported.allocations);
        said += &format!("  memory of others {imported}");
    }
    // What NVML said earlier does not go with what is held now.
    match process.nvml.filter(|_| !process.exited) {
        Some(nvml) => said + "  " + &sum(&nvml, live.gpu.bytes),
        None => said,
    }
}

/// Memory of a process of which nothing was traced.
fn untraced(process: &ProcessReport) -> String {
    let Some(nvml) = &process.nvml else {
        return "nothing allocated since attach".into();
    };
    let held = size(nvml.used_bytes);
    format!("{held} held (nvidia-smi), nothing allocated since attach")
}

/// Terms added to `held_bytes` to make nvidia-smi's number.
fn sum(nvml: &NvmlUsage, held_bytes: u64) -> String {
    // Managed memory is wherever it is used.
    let managed = held_bytes.saturating_sub(nvml.tracked_bytes);
    let rest = nvml.other_bytes.max(0).unsigned_abs();
    let missing = nvml.other_bytes.min(0).unsigned_abs();
    let context = nvml.context_bytes.unwrap_or(0).min(rest);
    let segments = nvml.segment_bytes.min(rest - context);
    let whose = match nvml.segments_of {
        Some(framework) => format!("+ {}'s segments from before attach", framework.name()),
        None => "+ segments of frameworks from before attach".to_owned(),
    };
    let terms = [
        ("- managed", managed),
        ("- not at a GPU", missing),
        ("+ context", context),
        (whose.as_str(), segments),
        ("+ before attach or outside CUDA", rest - context - segments),
    ];
    let terms = terms.iter().filter(|(_, bytes)| *bytes > 0);
    let terms = terms.map(|(what, bytes)| format!("{what} {} ", size(*bytes)));
    let terms: String = terms.collect();
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
            segment_bytes: GIB,
            segments_of: Some(gpuprobe_cuda::Framework::Xla),
        };
        let expected = "+ context 512.00 MiB + XLA's segments from before attach 1.00 GiB \
                        + before attach or outside CUDA 512.00 MiB = nvidia-smi 7.00 GiB";
        assert_eq!(sum(&nvml, nvml.tracked_bytes), expected);
        let nvml = NvmlUsage {
            used_bytes: 10 << 20,
            tracked_bytes: 12 << 20,
            other_bytes: -(2 << 20),
            context_bytes: None,
            segment_bytes: 0,
            segments_of: None,
        };
        let expected = "- managed 8.00 MiB - not at a GPU 2.00 MiB = nvidia-smi 10.00 MiB";
        assert_eq!(sum(&nvml, 20 << 20), expected);
    }
}
