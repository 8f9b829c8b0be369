//! Kernels, copies, calls, waits and ranges, for people: of live processes, and of a file.

use std::io::{self, Write};

use gpuprobe_engine::transfers::EARLIER;
use gpuprobe_model::link::PcieLink;
use gpuprobe_model::text::{printable, size};

use super::page::Page;
use crate::activity::{ActivitySummary, BusyShares, DeviceSummary, MemorySummary, ProcessSummary};
use crate::bandwidth::{BandwidthUtil, CopyReport};
use crate::cudatrace::Cudatrace;
use crate::micros;
use crate::views::tables::Column;
use crate::views::tables::work::Work;
use crate::words::{Who, percent, plural, time};

/// Writes the launches of a live run.
pub(super) fn write_launches(report: &Cudatrace, page: &mut Page<'_>) -> io::Result<()> {
    if report.launches + report.graph_launches + report.captured_launches == 0 {
        return page.head("no kernel was launched");
    }
    for process in report.processes.iter().filter(|p| p.launches > 0) {
        let who = Who {
            pid: process.pid,
            comm: process.comm.as_deref(),
            command: process.command.as_deref(),
            user: process.user.as_deref(),
            uid: process.uid,
            exited: process.exited,
        };
        page.head(&who.title())?;
        let launches = plural(process.launches, "launch");
        let different = plural(process.kernels, "kernel");
        let calls = calls(&process.calls);
        writeln!(page, "{launches} of {different} by {calls}")?;
        // What was only captured has not run.
        let kernels = report.kernels.iter();
        let kernels = kernels.filter(|k| k.process == process.id && k.launches > 0);
        let kernels = kernels.map(|kernel| Work::launched(kernel, process.launches));
        page.table(Work::KERNELS, &kernels.collect::<Vec<_>>(), 0)?;
        if process.omitted_kernels > 0 {
            let kernels = plural(process.omitted_kernels, "more kernel");
            let launches = plural(process.omitted_launches, "launch");
            page.note(&format!("... {kernels}, {launches} (--top all)"))?;
        }
    }
    for graph in &report.graphs {
        let launches = plural(graph.launches, "launch");
        let graphs = plural(graph.graphs, "graph");
        page.head(&format!("pid {}: {launches} of {graphs}", graph.pid))?;
    }
    match report.captured_launches {
        0 => Ok(()),
        1 => page.head("1 launch was captured into a graph and did not run"),
        more => page.head(&format!(
            "{more} launches were captured into graphs and did not run"
        )),
    }
}

/// Which functions launched; how often each, if there are several.
fn calls(calls: &[(&'static str, u64)]) -> String {
    if let [(api, _)] = calls {
        return (*api).to_owned();
    }
    let each = calls.iter().map(|(api, count)| format!("{api} ({count})"));
    each.collect::<Vec<_>>().join(", ")
}

/// Writes the copies of a live run.
pub(super) fn write_copies(report: &BandwidthUtil, page: &mut Page<'_>) -> io::Result<()> {
    if report.directions.is_empty() {
        page.head("no copies so far")?;
    }
    let mut has_speeds = true;
    for directions in report.directions.chunk_by(|a, b| a.pid == b.pid) {
        let first = &directions[0];
        let who = Who {
            pid: first.pid,
            comm: first.comm.as_deref(),
            uid: first.uid,
            user: first.user.as_deref(),
            command: first.command.as_deref(),
            ..Who::default()
        };
        let name = match first.pid {
            EARLIER => "processes that ended earlier".to_owned(),
            _ => who.title(),
        };
        let copies = directions.iter();
        let copies: Vec<_> = copies.map(|one| Work::called(one, report.link)).collect();
        let (copied, sets) = copies_and_sets(&copies);
        let sets = match sets {
            0 => String::new(),
            sets => format!(", {}", plural(sets, "memory set")),
        };
        page.head(&format!("{name}  {}{sets}", plural(copied, "copy")))?;
        page.table(Work::COPIES, &copies, 2)?;
        has_speeds &= copies.iter().all(|one| one.bytes_per_second.is_some());
    }
    if !has_speeds {
        writeln!(
            page,
            "  no GB/S: calls return before the transfer ends; --activity times the GPU"
        )?;
    }
    if report.captured > 0 {
        let were = if report.captured == 1 { "was" } else { "were" };
        let copies = plural(report.captured, "copy");
        writeln!(page, "{copies} {were} captured into graphs and did not run")?;
    }
    if report.failed_calls > 0 {
        writeln!(page, "calls that failed: {}", report.failed_calls)?;
    }
    Ok(())
}

/// Number of copies and of memory sets.
pub(super) fn copies_and_sets(all: &[Work<'_>]) -> (u64, u64) {
    let count = |sets: bool| {
        let all = all.iter().filter(|one| one.is_set() == sets);
        all.map(|one| one.count).sum()
    };
    (count(false), count(true))
}

/// Writes one line for one copy.
pub(super) fn write_copy(copy: &CopyReport, page: &mut Page<'_>) -> io::Result<()> {
    let speed = copy.bytes_per_second;
    let speed = speed.map_or("-".into(), |speed| format!("{:.1} GB/s", speed / 1e9));
    writeln!(
        page,
        "{} {}:{} {} {} {} {} in {:.1} us  {speed}",
        micros(copy.time.as_ref()),
        copy.pid,
        copy.tid,
        copy.api,
        copy.direction,
        copy.mode,
        size(copy.bytes),
        copy.seconds * 1e6,
    )
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

fn write_process<'a>(
    process: &'a ProcessSummary,
    link: Option<PcieLink>,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let who = Who {
        pid: process.pid,
        comm: process.comm.as_deref(),
        uid: process.uid,
        user: process.user.as_deref(),
        command: process.command.as_deref(),
        exited: process.exited,
    };
    let records = plural(process.records, "GPU record");
    page.head(&format!("{}  {records}", who.title()))?;
    if process.exited && !process.complete {
        writeln!(
            page,
            "  what CUPTI had not handed over when it ended is missing"
        )?;
    }
    for device in &process.devices {
        write_device(device, process.observed_seconds, page)?;
    }
    let mut list = |columns: &[Column<Work<'a>>], rows: Vec<Work<'a>>, omitted: u64| {
        page.table(columns, &rows, 4)?;
        match omitted {
            0 => Ok(()),
            count => page.note(&format!("    ... and {count} more (--top all)")),
        }
    };
    list(
        Work::KERNELS,
        Work::kernels(process).collect(),
        process.omitted_kernels,
    )?;
    list(Work::COPIES, Work::copies(process, link).collect(), 0)?;
    list(Work::WAITS, Work::waits(process).collect(), 0)?;
    list(
        Work::CALLS,
        Work::calls(process).collect(),
        process.omitted_functions,
    )?;
    list(Work::OVERHEAD, Work::overhead(process).collect(), 0)?;
    list(
        Work::RANGES,
        Work::ranges(process).collect(),
        process.omitted_ranges,
    )?;
    write_memory("memory", &process.memory, page)?;
    write_memory("memory pools", &process.memory_pools, page)?;
    let graphs = &process.graphs;
    if graphs.count > 0 {
        let [total, median, p99, min, max] = [
            graphs.total_ns,
            graphs.median_ns,
            graphs.p99_ns,
            graphs.min_ns,
            graphs.max_ns,
        ]
        .map(|ns| time(ns as f64));
        let (runs, mean) = (plural(graphs.count, "run"), time(graphs.mean_ns));
        writeln!(
            page,
            "  graphs: {runs}, {total}, mean {mean}, median {median}, p99 {p99}, min {min}, max {max}"
        )?;
    }
    if process.markers > 0 {
        let open = match process.open_ranges {
            0 => String::new(),
            open => format!(", {} not ended", plural(open, "range")),
        };
        let marks = process.markers;
        writeln!(
            page,
            "  NVTX marks, begins and ends of ranges: {marks}{open}"
        )?;
    }
    Ok(())
}

fn write_device(device: &DeviceSummary, observed: f64, page: &mut Page<'_>) -> io::Result<()> {
    let number = device
        .device
        .map_or("?".into(), |number| number.to_string());
    let gpu = gpu(&number, device.name.as_deref());
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
        writeln!(page, "      {}", lengths(&gaps.by_length))?;
    }
    if device.late_records > 0 {
        let late = plural(device.late_records, "record");
        writeln!(page, "    {late} came too late to be part of the shares")?;
    }
    Ok(())
}

/// `GPU 0 NVIDIA H200`.
pub(super) fn gpu(number: &str, name: Option<&str>) -> String {
    let name = name.map_or(String::new(), |name| format!(" {}", printable(name)));
    format!("GPU {number}{name}")
}

/// `kernels 2.3 %, copies 97.0 %, idle 0.7 % of 12.3 s`; memory sets and graphs where there are any.
pub(super) fn shares(shares: &BusyShares, of_ns: f64) -> String {
    let rare = |what: &str, share: f64| match share > 0.0 {
        true => format!("{what} {} %, ", percent(share)),
        false => String::new(),
    };
    format!(
        "kernels {} %, copies {} %, {}{}idle {} % of {}",
        percent(shares.kernels),
        percent(shares.copies),
        rare("sets", shares.sets),
        rare("graphs", shares.graphs),
        percent(shares.idle),
        time(of_ns),
    )
}

/// Gaps by length, in powers of ten.
fn lengths(by_length: &[[u64; 2]]) -> String {
    const BOUNDS: [(u64, &str); 5] = [
        (1 << 10, "1 us"),
        (1 << 14, "16 us"),
        (1 << 20, "1 ms"),
        (1 << 24, "17 ms"),
        (u64::MAX, ""),
    ];
    let (mut from, mut above) = (0, "");
    let mut parts = Vec::new();
    for (bound, name) in BOUNDS {
        let within = by_length
            .iter()
            .filter(|[ns, _]| from < *ns && *ns <= bound);
        let count: u64 = within.map(|[_, count]| count).sum();
        if count > 0 && name.is_empty() {
            parts.push(format!("{count} of {above} and more"));
        } else if count > 0 {
            parts.push(format!("{count} below {name}"));
        }
        (from, above) = (bound, name);
    }
    parts.join(", ")
}

fn write_memory(what: &str, all: &[MemorySummary], page: &mut Page<'_>) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let one = |memory: &MemorySummary| {
        let kind = memory.kind.map_or(String::new(), |kind| format!("{kind} "));
        let (operation, count) = (memory.operation, memory.count);
        format!("{kind}{operation} {count} ({})", size(memory.bytes))
    };
    let all: Vec<_> = all.iter().map(one).collect();
    writeln!(page, "  {what}: {}", all.join(", "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
