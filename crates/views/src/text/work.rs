//! Kernels, copies, calls, waits and ranges of live processes, for people.

use gpuprobe_model::link::PcieLink;
use gpuprobe_model::text::{printable, size};

use super::gpu;
use super::page::{Page, commas, counts};
use crate::tables::work::{COPIES, COPY_SITES, KERNELS, columns};
use gpuprobe_report::activity::{
    ActivitySummary, BusyShares, DeviceSummary, MemorySummary, ProcessSummary,
};
use gpuprobe_report::bandwidth::{BandwidthUtil, CopyReport};
use gpuprobe_report::copy_sites::CopySiteReport;
use gpuprobe_report::cudatrace::Cudatrace;
use gpuprobe_report::micros;
use gpuprobe_report::words::{percent, plural, time};
use gpuprobe_report::work::{Work, WorkList, WorkSum};

/// Writes the launches of a live run.
pub(super) fn write_launches(report: &Cudatrace, page: &mut Page) {
    if report.is_empty() {
        return page.head("no kernel was launched");
    }
    for process in report.processes.iter().filter(|p| p.launches > 0) {
        page.head(&process.who.title(process.exited));
        let launches = plural(process.launches, "launch");
        let different = plural(process.kernels, "kernel");
        let calls = process.calls.iter();
        let calls = commas(calls.map(|(api, count)| format!("{api} ({count})")));
        page.line(format!("{launches} of {different} by {calls}"));
        // What was only captured has not run.
        let kernels = report.kernels.iter();
        let kernels = kernels.filter(|k| k.process == process.id && k.launches > 0);
        let kernels = kernels.map(|kernel| Work::launched(kernel, process.launches));
        page.table(KERNELS, &kernels.collect::<Vec<_>>(), 0);
        page.more(process.omitted_kernels, 0);
    }
    for graph in &report.graphs {
        let launches = plural(graph.launches, "launch");
        let graphs = plural(graph.graphs, "graph");
        page.head(&format!("pid {}: {launches} of {graphs}", graph.pid));
    }
    if report.captured_launches > 0 {
        let captured = report.captured_launches;
        page.head(&format!("captured into graphs, not run: {captured}"));
    }
}

/// Writes the copies of a live run.
pub(super) fn write_copies(report: &BandwidthUtil, page: &mut Page) {
    if report.directions.is_empty() {
        page.head("no copies so far");
    }
    for directions in report.directions.chunk_by(|a, b| a.who.pid == b.who.pid) {
        let first = &directions[0];
        let name = match first.is_of_earlier() {
            true => "processes that ended earlier".to_owned(),
            false => first.who.title(false),
        };
        let copies = directions.iter();
        let copies: Vec<_> = copies.map(|one| Work::called(one, report.link)).collect();
        let WorkSum { count, sets, .. } = WorkSum::of(&copies);
        let all = [(count, "copy"), (sets, "memory set")];
        let some = all.iter().filter(|(count, _)| *count > 0);
        let some = commas(some.map(|(count, what)| plural(*count, what)));
        page.head(&format!("{name}  {some}"));
        page.table(COPIES, &copies, 2);
        let has_none = |one: &Work| one.bytes_per_second.is_none() && !one.is_set();
        if copies.iter().any(has_none) {
            page.line("  no GB/S: calls return before the transfer ends; --activity times the GPU");
        }
        let sites = report.sites.iter().filter(|site| site.pid == first.who.pid);
        write_copy_sites(&sites.cloned().collect::<Vec<_>>(), page);
    }
    page.more(report.omitted_sites, 2);
    for line in counts(&[
        (report.captured, "captured into graphs, not run"),
        (report.failed_calls, "calls that failed"),
    ]) {
        page.line(line);
    }
}

/// Writes the call sites of copies, and what would be faster.
pub(super) fn write_copy_sites(sites: &[CopySiteReport], page: &mut Page) {
    page.table(COPY_SITES, sites, 2);
    for site in sites {
        if let Some(advice) = site.advice {
            page.line(format!("  {}: {advice}", printable(&site.label)));
        }
    }
}

/// Writes one line for one copy.
pub(super) fn write_copy(copy: &CopyReport, page: &mut Page) {
    let speed = copy.bytes_per_second;
    let speed = speed.map_or("-".into(), |speed| format!("{:.1} GB/s", speed / 1e9));
    let (pid, tid, api) = (copy.pid, copy.tid, copy.api);
    let what = format!("{} {} {}", copy.direction, copy.mode, size(copy.bytes));
    let (at, us) = (micros(copy.time.as_ref()), copy.seconds * 1e6);
    page.line(format!(
        "{at} {pid}:{tid} {api} {what} in {us:.1} us  {speed}"
    ));
}

/// Writes the GPU activity of a live run.
pub(super) fn write_activity(report: &ActivitySummary, page: &mut Page) {
    if report.records == 0 {
        return page.head("no GPU activity so far");
    }
    for process in &report.processes {
        write_process(process, report.link, page);
    }
    if report.forgotten_processes > 0 {
        let count = report.forgotten_processes;
        page.note(format!("... and {count} processes that ended long ago"));
    }
}

fn write_process(process: &ProcessSummary, link: Option<PcieLink>, page: &mut Page) {
    let who = process.who.title(process.exited);
    let records = plural(process.records, "GPU record");
    page.head(&format!("{who}  {records}"));
    if process.exited && !process.complete {
        page.line("  what CUPTI had not handed over when it ended is missing");
    }
    for device in &process.devices {
        write_device(device, process.observed_seconds, page);
    }
    for (list, omitted) in [
        (WorkList::Kernels, process.omitted_kernels),
        (WorkList::Copies, 0),
        (WorkList::Waits, 0),
        (WorkList::Calls, process.omitted_functions),
        (WorkList::Overhead, 0),
        (WorkList::Ranges, process.omitted_ranges),
    ] {
        page.table(columns(list), &Work::of(list, process, link), 4);
        page.more(omitted, 4);
    }
    write_memory("memory", &process.memory, page);
    write_memory("memory pools", &process.memory_pools, page);
    let graphs = &process.graphs;
    if graphs.count > 0 {
        let (runs, total) = (plural(graphs.count, "run"), time(graphs.total_ns as f64));
        let mean = time(graphs.mean_ns);
        page.line(format!("  graphs: {runs}, {total}, mean {mean}"));
    }
    if process.open_ranges > 0 {
        let open = plural(process.open_ranges, "range");
        page.line(format!("  {open} not ended"));
    }
}

fn write_device(device: &DeviceSummary, observed: f64, page: &mut Page) {
    let gpu = gpu(device.device, device.name.as_deref());
    let parts = shares(&device.shares, observed * 1e9);
    page.line(format!("  {gpu}  {parts}"));
    let recent = device.recent_seconds;
    if recent < observed {
        let shares = shares(&device.recent_shares, recent * 1e9);
        page.line(format!("    since the last report  {shares}"));
    }
    let gaps = &device.gaps;
    if gaps.count > 0 {
        let (count, total) = (plural(gaps.count, "time"), time(gaps.total_ns as f64));
        let longest = time(gaps.longest_ns as f64);
        page.line(format!("    idle {count}, {total}, at most {longest}"));
    }
    if device.late_records > 0 {
        let late = plural(device.late_records, "record");
        page.line(format!("    {late} came too late to be part of the shares"));
    }
}

/// `kernels 2.3 %, copies 97.0 %, idle 0.7 % of 12.3 s`; memory sets and graphs where there are any.
pub(super) fn shares(shares: &BusyShares, of_ns: f64) -> String {
    let all = [
        ("kernels", shares.kernels, true),
        ("copies", shares.copies, true),
        ("sets", shares.sets, shares.sets > 0.0),
        ("graphs", shares.graphs, shares.graphs > 0.0),
        ("idle", shares.idle, true),
    ];
    let shown = all.iter().filter(|(_, _, is_shown)| *is_shown);
    let shown = shown.map(|(what, share, _)| format!("{what} {} %", percent(*share)));
    format!("{} of {}", commas(shown), time(of_ns))
}

fn write_memory(what: &str, all: &[MemorySummary], page: &mut Page) {
    let one = |memory: &MemorySummary| {
        let kind = memory.kind.map_or(String::new(), |kind| format!("{kind} "));
        let (operation, count) = (memory.operation, memory.count);
        format!("{kind}{operation} {count} ({})", size(memory.bytes))
    };
    if !all.is_empty() {
        page.line(format!("  {what}: {}", commas(all.iter().map(one))));
    }
}
