//! Kernels, copies, calls, waits and ranges of live processes, for people.

use std::io::{self, Write};

use gpuprobe_model::link::PcieLink;
use gpuprobe_model::text::{printable, size};

use super::page::Page;
use crate::tables::work::{COPIES, KERNELS, columns};
use gpuprobe_report::activity::{
    ActivitySummary, BusyShares, DeviceSummary, MemorySummary, ProcessSummary,
};
use gpuprobe_report::bandwidth::{BandwidthUtil, CopyReport};
use gpuprobe_report::cudatrace::Cudatrace;
use gpuprobe_report::micros;
use gpuprobe_report::words::{percent, plural, time};
use gpuprobe_report::work::{Work, WorkList, WorkSum};

/// Writes the launches of a live run.
pub(super) fn write_launches(report: &Cudatrace, page: &mut Page<'_>) -> io::Result<()> {
    if report.launches + report.graph_launches + report.captured_launches == 0 {
        return page.head("no kernel was launched");
    }
    for process in report.processes.iter().filter(|p| p.launches > 0) {
        page.head(&process.who.title(process.exited))?;
        let launches = plural(process.launches, "launch");
        let different = plural(process.kernels, "kernel");
        let calls: Vec<_> = match process.calls[..] {
            [(api, _)] => vec![api.to_owned()],
            _ => process
                .calls
                .iter()
                .map(|(api, count)| format!("{api} ({count})"))
                .collect(),
        };
        writeln!(page, "{launches} of {different} by {}", calls.join(", "))?;
        // What was only captured has not run.
        let kernels = report.kernels.iter();
        let kernels = kernels.filter(|k| k.process == process.id && k.launches > 0);
        let kernels = kernels.map(|kernel| Work::launched(kernel, process.launches));
        page.table(KERNELS, &kernels.collect::<Vec<_>>(), 0)?;
        page.more(process.omitted_kernels, 0)?;
    }
    for graph in &report.graphs {
        let launches = plural(graph.launches, "launch");
        let graphs = plural(graph.graphs, "graph");
        page.head(&format!("pid {}: {launches} of {graphs}", graph.pid))?;
    }
    match report.captured_launches {
        0 => Ok(()),
        captured => page.head(&format!("captured into graphs, not run: {captured}")),
    }
}

/// Writes the copies of a live run.
pub(super) fn write_copies(report: &BandwidthUtil, page: &mut Page<'_>) -> io::Result<()> {
    if report.directions.is_empty() {
        page.head("no copies so far")?;
    }
    let mut has_speeds = true;
    for directions in report.directions.chunk_by(|a, b| a.who.pid == b.who.pid) {
        let first = &directions[0];
        let name = match first.is_of_earlier() {
            true => "processes that ended earlier".to_owned(),
            false => first.who.title(false),
        };
        let copies = directions.iter();
        let copies: Vec<_> = copies.map(|one| Work::called(one, report.link)).collect();
        let WorkSum { count, sets, .. } = WorkSum::of(&copies);
        let sets = match sets {
            0 => String::new(),
            sets => format!(", {}", plural(sets, "memory set")),
        };
        page.head(&format!("{name}  {}{sets}", plural(count, "copy")))?;
        page.table(COPIES, &copies, 2)?;
        has_speeds &= copies.iter().all(|one| one.bytes_per_second.is_some());
    }
    if !has_speeds {
        writeln!(
            page,
            "  no GB/S: calls return before the transfer ends; --activity times the GPU"
        )?;
    }
    if report.captured > 0 {
        writeln!(page, "captured into graphs, not run: {}", report.captured)?;
    }
    if report.failed_calls > 0 {
        writeln!(page, "calls that failed: {}", report.failed_calls)?;
    }
    Ok(())
}

/// Writes one line for one copy.
pub(super) fn write_copy(copy: &CopyReport, page: &mut Page<'_>) -> io::Result<()> {
    let speed = copy.bytes_per_second;
    let speed = speed.map_or("-".into(), |speed| format!("{:.1} GB/s", speed / 1e9));
    let (pid, tid, api) = (copy.pid, copy.tid, copy.api);
    let what = format!("{} {} {}", copy.direction, copy.mode, size(copy.bytes));
    let (at, us) = (micros(copy.time.as_ref()), copy.seconds * 1e6);
    writeln!(page, "{at} {pid}:{tid} {api} {what} in {us:.1} us  {speed}")
}

/// Writes the GPU activity of a live run.
pub(super) fn write_activity(report: &ActivitySummary, page: &mut Page<'_>) -> io::Result<()> {
    if report.records == 0 {
        return page.head("no GPU activity so far");
    }
    for process in &report.processes {
        write_process(process, report.link, page)?;
    }
    match report.forgotten_processes {
        0 => Ok(()),
        count => page.note(&format!("... and {count} processes that ended long ago")),
    }
}

fn write_process(
    process: &ProcessSummary,
    link: Option<PcieLink>,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let who = process.who.title(process.exited);
    let records = plural(process.records, "GPU record");
    page.head(&format!("{who}  {records}"))?;
    if process.exited && !process.complete {
        writeln!(
            page,
            "  what CUPTI had not handed over when it ended is missing"
        )?;
    }
    for device in &process.devices {
        write_device(device, process.observed_seconds, page)?;
    }
    for (list, omitted) in [
        (WorkList::Kernels, process.omitted_kernels),
        (WorkList::Copies, 0),
        (WorkList::Waits, 0),
        (WorkList::Calls, process.omitted_functions),
        (WorkList::Overhead, 0),
        (WorkList::Ranges, process.omitted_ranges),
    ] {
        page.table(columns(list), &Work::of(list, process, link), 4)?;
        page.more(omitted, 4)?;
    }
    write_memory("memory", &process.memory, page)?;
    write_memory("memory pools", &process.memory_pools, page)?;
    let graphs = &process.graphs;
    if graphs.count > 0 {
        let (runs, total) = (plural(graphs.count, "run"), time(graphs.total_ns as f64));
        writeln!(
            page,
            "  graphs: {runs}, {total}, mean {}",
            time(graphs.mean_ns)
        )?;
    }
    match process.open_ranges {
        0 => Ok(()),
        open => writeln!(page, "  {} not ended", plural(open, "range")),
    }
}

fn write_device(device: &DeviceSummary, observed: f64, page: &mut Page<'_>) -> io::Result<()> {
    let gpu = gpu(device.device, device.name.as_deref());
    writeln!(page, "  {gpu}  {}", shares(&device.shares, observed * 1e9))?;
    let recent = device.recent_seconds;
    if recent < observed {
        let shares = shares(&device.recent_shares, recent * 1e9);
        writeln!(page, "    since the last report  {shares}")?;
    }
    let gaps = &device.gaps;
    if gaps.count > 0 {
        let (count, total) = (plural(gaps.count, "time"), time(gaps.total_ns as f64));
        let longest = time(gaps.longest_ns as f64);
        writeln!(
            page,
            "    idle between work {count}, for {total}, at most {longest}"
        )?;
    }
    if device.late_records > 0 {
        let late = plural(device.late_records, "record");
        writeln!(page, "    {late} came too late to be part of the shares")?;
    }
    Ok(())
}

/// `GPU 0 NVIDIA H200`.
pub(super) fn gpu(number: Option<u32>, name: Option<&str>) -> String {
    let number = number.map_or("?".into(), |number| number.to_string());
    let name = name.map_or(String::new(), |name| format!(" {}", printable(name)));
    format!("GPU {number}{name}")
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
    let shown: Vec<_> = shown.collect();
    format!("{} of {}", shown.join(", "), time(of_ns))
}

fn write_memory(what: &str, all: &[MemorySummary], page: &mut Page<'_>) -> io::Result<()> {
    let one = |memory: &MemorySummary| {
        let kind = memory.kind.map_or(String::new(), |kind| format!("{kind} "));
        let (operation, count) = (memory.operation, memory.count);
        format!("{kind}{operation} {count} ({})", size(memory.bytes))
    };
    match all.iter().map(one).collect::<Vec<_>>() {
        all if all.is_empty() => Ok(()),
        all => writeln!(page, "  {what}: {}", all.join(", ")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
