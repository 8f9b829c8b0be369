//! The text of the first gpuprobe, line for line, for scripts that read it.

use std::io::{self, Write};

use gpuprobe_model::clock;
use gpuprobe_model::text::{printable, size};
use gpuprobe_report::bandwidth::{BandwidthUtil, CopyReport, DirectionReport};
use gpuprobe_report::cudatrace::{Cudatrace, KernelReport, LauncherReport};
use gpuprobe_report::memleak::{AllocationReport, Memleak, ProcessReport};
use gpuprobe_report::records::PerRecordLine;
use gpuprobe_report::words::{describe_lost, plural};
use gpuprobe_report::{Report, ReportWriter, names};

use super::text::TextWriter;

/// Columns of a kernel's name.
const NAME: usize = 64;
/// Blocks of the bar of a kernel that has all launches.
const BAR: f64 = 16.0;

pub(crate) struct Classic;

impl ReportWriter for Classic {
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let rule = "-".repeat(20);
        let time = report.time.as_ref().map(clock::rfc3339_seconds);
        writeln!(out, "{rule} {} {rule}", time.unwrap_or_default())?;
        if let Some(memleak) = &report.memleak {
            write_memleak(memleak, out)?;
        }
        if let Some(cudatrace) = &report.cudatrace {
            write_cudatrace(cudatrace, out)?;
        }
        if let Some(bandwidth) = &report.bandwidth_util {
            write_bandwidth(bandwidth, out)?;
        }
        if report.lost.any() {
            let lost = describe_lost(&report.lost);
            writeln!(out, "LOST EVENTS, the figures above are incomplete: {lost}")?;
        }
        writeln!(out)
    }

    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
        TextWriter::default().write_copy(copy, out)
    }

    fn write_activity(&mut self, line: &PerRecordLine<'_>, out: &mut dyn Write) -> io::Result<()> {
        TextWriter::default().write_activity(line, out)
    }
}

fn write_memleak(memleak: &Memleak, out: &mut dyn Write) -> io::Result<()> {
    if memleak.is_empty() {
        return writeln!(out, "NO EVENT.");
    }
    for process in memleak.processes.iter().filter(|one| one.is_listed()) {
        write_process(process, out)?;
    }
    let (live, calls) = (memleak.live.gpu, memleak.calls.iter());
    let mut calls = calls.map(|(symbol, count)| format!("`{symbol}` calls: {count}"));
    let first = calls.next();
    let first = first.unwrap_or_else(|| "allocating calls: 0".into());
    let calls = calls.fold(first, |all, next| format!("{all}, {next}"));
    writeln!(out, "\nTOTAL LEAKED: {}\n", size(live.bytes))?;
    writeln!(out, "total number of {calls}")?;
    for (count, what) in [
        (memleak.failed_calls, "calls that failed"),
        (
            memleak.unknown_frees,
            "frees of memory allocated before tracing began",
        ),
    ] {
        if count > 0 {
            writeln!(out, "{what}: {count}")?;
        }
    }
    let (bytes, count) = (live.bytes, live.allocations);
    writeln!(
        out,
        "{bytes} bytes leaked from {count} cuda memory allocation(s)"
    )
}

fn write_process(process: &ProcessReport, out: &mut dyn Write) -> io::Result<()> {
    let uid = process.who.uid.map_or("?".into(), |uid| uid.to_string());
    let exited = if process.exited { " (exited)" } else { "" };
    writeln!(out, "PID: {} / UID: {uid}{exited}", process.who.pid)?;
    if process.threads.is_empty() {
        writeln!(out, "  nothing live")?;
    }
    for thread in &process.threads {
        let tid = thread.tid.map_or("?".into(), |tid| tid.to_string());
        let comm = printable(thread.comm.as_deref().unwrap_or("?"));
        writeln!(out, "  {comm}:{tid}")?;
        for one in &thread.allocations {
            let (address, place) = (one.address, place(one));
            writeln!(out, "    {address:#x}:{place}: {}", size(one.bytes))?;
        }
        let (more, bytes) = (thread.omitted_allocations, size(thread.omitted_bytes));
        if more > 0 {
            writeln!(out, "    ... and {more} more, {bytes}")?;
        }
    }
    Ok(())
}

fn place(allocation: &AllocationReport) -> String {
    match allocation.device {
        _ if allocation.at_host => "host".into(),
        Some(device) => format!("gpu_{device}"),
        None => "gpu_?".into(),
    }
}

fn write_cudatrace(report: &Cudatrace, out: &mut dyn Write) -> io::Result<()> {
    if report.is_empty() {
        return writeln!(out, "NO LAUNCH.");
    }
    for process in report.processes.iter().filter(|one| one.launches > 0) {
        // What was only captured has not run.
        let kernels = report.kernels.iter();
        let kernels = kernels.filter(|one| one.process == process.id && one.launches > 0);
        write_launcher(process, &kernels.collect::<Vec<_>>(), out)?;
    }
    for graph in &report.graphs {
        let (launches, graphs) = (graph.launches, graph.graphs);
        let pid = graph.pid;
        writeln!(
            out,
            "PID: {pid}: {launches} graph launches of {graphs} graphs"
        )?;
    }
    match report.captured_launches {
        0 => Ok(()),
        captured => writeln!(
            out,
            "{captured} launches were captured into graphs and did not run"
        ),
    }
}

fn write_launcher(
    process: &LauncherReport,
    kernels: &[&KernelReport],
    out: &mut dyn Write,
) -> io::Result<()> {
    let uid = process.who.uid.map_or("?".into(), |uid| uid.to_string());
    let comm = printable(process.who.comm.as_deref().unwrap_or("?"));
    let exited = if process.exited { " (exited)" } else { "" };
    writeln!(out, "PID: {} / UID: {uid} {comm}{exited}", process.who.pid)?;
    let calls = process.calls.iter();
    let calls: Vec<_> = calls
        .map(|(api, count)| format!("{count} `{api}`"))
        .collect();
    let count = process.kernels;
    writeln!(out, "{} calls for {count} kernels", calls.join(", "))?;
    let all: Vec<_> = kernels.iter().map(|one| printable(&one.name)).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let shown = names::fit(&all, NAME, names::simplify);
    let width = shown.iter().map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0);
    for (kernel, name) in kernels.iter().zip(&shown) {
        let (launches, per_second) = (kernel.launches, kernel.per_second);
        let share = launches as f64 / process.launches.max(1) as f64;
        let bar = "█".repeat((share * BAR).round() as usize);
        let [grid, block] = [kernel.grid, kernel.block].map(|[x, y, z]| format!("{x}x{y}x{z}"));
        let percent = share * 100.0;
        writeln!(
            out,
            "        {name:width$}   {launches} launches  {percent:>5.1} %  {per_second:>9.1}/s  {bar:16}  grid {grid} block {block}"
        )?;
    }
    match process.omitted_kernels {
        0 => Ok(()),
        more => writeln!(
            out,
            "        ... and {more} more, {} launches",
            process.omitted_launches
        ),
    }
}

fn write_bandwidth(report: &BandwidthUtil, out: &mut dyn Write) -> io::Result<()> {
    let sets = match report.sets {
        0 => String::new(),
        sets => format!(" and {}", plural(sets, "memory set")),
    };
    writeln!(out, "Traced {} copies{sets}", report.copies)?;
    for of_process in report.directions.chunk_by(|a, b| a.who.pid == b.who.pid) {
        writeln!(out, "PID: {}", of_process[0].who.pid)?;
        for direction in of_process {
            writeln!(out, "{}", described(direction, report))?;
        }
    }
    for (count, what) in [
        (report.captured, "copies captured into graphs, not run"),
        (report.failed_calls, "calls that failed"),
    ] {
        if count > 0 {
            writeln!(out, "{what}: {count}")?;
        }
    }
    Ok(())
}

fn described(one: &DirectionReport, report: &BandwidthUtil) -> String {
    let (direction, calls, bytes) = (one.direction, one.calls, size(one.bytes));
    let speed = match one.bytes_per_second {
        Some(mean) => {
            let peak = gigabytes(one.peak_bytes_per_second.unwrap_or(mean));
            let now = one.now_bytes_per_second.map_or("-".into(), gigabytes);
            format!("mean {}  peak {peak}  now {now}", gigabytes(mean))
        }
        None => {
            let wall = gigabytes(one.wall_bytes_per_second);
            format!("{wall} of wall-clock time (calls return before the transfer ends)")
        }
    };
    let link = one.link_utilisation.zip(report.link);
    let link = link.map_or(String::new(), |(used, link)| {
        format!("   {:.0} % of {link}", used * 100.0)
    });
    format!("        {direction:<7} {calls} calls  {bytes}   {speed}{link}")
}

/// Links and vendors count in powers of ten.
fn gigabytes(per_second: f64) -> String {
    format!("{:.1} GB/s", per_second / 1e9)
}
