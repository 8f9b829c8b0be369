//! What the GPU did, for people.

use gpuprobe_cuda::names::without_version;
use gpuprobe_model::text::printable;
use gpuprobe_model::text::size;
use std::io::{self, Write};

use crate::activity::{
    ActivitySummary, CallSummary, CopySummary, DeviceSummary, KernelSummary, MemorySummary,
    ProcessSummary, Timed, Times,
};
use gpuprobe_stacks::symbols;

/// Columns of a kernel's name at most.
const NAME_WIDTH: usize = 64;
/// What of a process is listed is indented by this.
const INDENT: &str = "        ";

pub(super) fn write(report: &ActivitySummary, out: &mut dyn Write) -> io::Result<()> {
    if report.records == 0 {
        return writeln!(out, "NO ACTIVITY.");
    }
    writeln!(out, "{} records of what the GPU did", report.records)?;
    for process in &report.processes {
        write_process(process, out)?;
    }
    if report.forgotten_processes > 0 {
        let count = report.forgotten_processes;
        writeln!(out, "... and {count} processes that ended long ago")?;
    }
    Ok(())
}

fn write_process(process: &ProcessSummary, out: &mut dyn Write) -> io::Result<()> {
    let uid = process.uid.map_or("?".into(), |uid| uid.to_string());
    let comm = printable(process.comm.as_deref().unwrap_or("?"));
    let exited = match (process.exited, process.complete) {
        (false, _) => "",
        (true, true) => " (exited)",
        (true, false) => " (exited; what CUPTI had not handed over by then is missing)",
    };
    writeln!(out, "PID: {} / UID: {uid} {comm}{exited}", process.pid)?;
    for device in &process.devices {
        write_device(device, process.observed_seconds, out)?;
    }
    write_kernels(process, out)?;
    process
        .copies
        .iter()
        .try_for_each(|copy| write_copy(copy, out))?;
    write_timed("waits for the GPU", &process.synchronizations, out)?;
    write_memory("memory", &process.memory, out)?;
    write_memory("memory pools", &process.memory_pools, out)?;
    write_calls(&process.calls, process.omitted_functions, out)?;
    if process.graphs.count > 0 {
        writeln!(out, "    graphs: {}", times(&process.graphs, "runs"))?;
    }
    write_timed("cost of tracing", &process.overhead, out)?;
    if process.markers > 0 {
        writeln!(out, "    marks of the program: {}", process.markers)?;
    }
    Ok(())
}

/// Calls, waits and the cost of tracing, of a file: the first `top` functions.
pub(crate) fn write_calls_and_waits(
    process: &ProcessSummary,
    top: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let parts = [process.calls.len(), process.synchronizations.len()];
    if parts.iter().all(|&count| count == 0) {
        return Ok(());
    }
    let comm = printable(process.comm.as_deref().unwrap_or("?"));
    writeln!(out, "\nPID: {} {comm}", process.pid)?;
    let (shown, rest) = process.calls.split_at(top.min(process.calls.len()));
    write_calls(shown, rest.len() as u64, out)?;
    write_timed("waits for the GPU", &process.synchronizations, out)?;
    write_timed("cost of tracing", &process.overhead, out)
}

fn write_device(device: &DeviceSummary, observed: f64, out: &mut dyn Write) -> io::Result<()> {
    let number = device
        .device
        .map_or("?".into(), |number| number.to_string());
    let name = device.name.as_deref().map(printable).unwrap_or_default();
    let space = if name.is_empty() { "" } else { " " };
    writeln!(
        out,
        "    GPU {number}{space}{name}: busy {}, {:.1} % of {:.3} s; since the last report {:.1} %",
        time(device.busy_ns as f64),
        device.busy_share * 100.0,
        observed,
        device.recent_busy_share * 100.0,
    )?;
    let gaps = &device.gaps;
    if gaps.count > 0 {
        writeln!(
            out,
            "{INDENT}nothing ran {} times between, for {}, at most {}",
            gaps.count,
            time(gaps.total_ns as f64),
            time(gaps.longest_ns as f64),
        )?;
        write_lengths(&gaps.by_length, out)?;
    }
    if device.late_records > 0 {
        let late = device.late_records;
        writeln!(
            out,
            "{INDENT}{late} records came too late to be counted as busy"
        )?;
    }
    Ok(())
}

/// Gaps by length, in powers of ten.
fn write_lengths(by_length: &[[u64; 2]], out: &mut dyn Write) -> io::Result<()> {
    const BOUNDS: [(u64, &str); 5] = [
        (1 << 10, "1 us"),
        (1 << 14, "16 us"),
        (1 << 20, "1 ms"),
        (1 << 24, "17 ms"),
        (u64::MAX, ""),
    ];
    let mut from = 0;
    let mut parts = Vec::new();
    for (index, &(bound, name)) in BOUNDS.iter().enumerate() {
        let within = by_length
            .iter()
            .filter(|[ns, _]| from < *ns && *ns <= bound);
        let count: u64 = within.map(|[_, count]| count).sum();
        let above = index.checked_sub(1).map_or("", |below| BOUNDS[below].1);
        if count > 0 && name.is_empty() {
            parts.push(format!("{count} of {above} and more"));
        } else if count > 0 {
            parts.push(format!("{count} below {name}"));
        }
        from = bound;
    }
    writeln!(out, "{INDENT}{}", parts.join(", "))
}

fn write_kernels(process: &ProcessSummary, out: &mut dyn Write) -> io::Result<()> {
    if process.kernels.is_empty() {
        return Ok(());
    }
    writeln!(out, "    kernels")?;
    let shown = |kernel: &KernelSummary| printable(&symbols::shorten(&kernel.name, NAME_WIDTH));
    let names: Vec<_> = process.kernels.iter().map(shown).collect();
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    for (kernel, name) in process.kernels.iter().zip(&names) {
        writeln!(
            out,
            "{INDENT}{name:width$}   {:>5.1} %  {}",
            kernel.share * 100.0,
            times(&kernel.times, "runs"),
        )?;
    }
    if process.omitted_kernels > 0 {
        writeln!(out, "{INDENT}... and {} more", process.omitted_kernels)?;
    }
    Ok(())
}

fn write_copy(copy: &CopySummary, out: &mut dyn Write) -> io::Result<()> {
    let between = match (copy.source, copy.destination) {
        (Some(source), Some(destination)) => format!(" {source} to {destination}"),
        _ => String::new(),
    };
    let mode = copy.mode.map(|mode| format!(" {mode}")).unwrap_or_default();
    let speed = |speed: Option<f64>| {
        speed.map_or("-".to_owned(), |speed| format!("{:.1} GB/s", speed / 1e9))
    };
    writeln!(
        out,
        "    {}{mode}{between}: {} in {}, {}   mean {}  peak {}",
        copy.direction,
        copy.times.count,
        time(copy.times.total_ns as f64),
        size(copy.bytes),
        speed(copy.bytes_per_second),
        speed(copy.peak_bytes_per_second),
    )
}

fn write_timed(what: &str, all: &[Timed], out: &mut dyn Write) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "    {what}")?;
    for timed in all {
        writeln!(
            out,
            "{INDENT}{}: {}",
            timed.kind,
            times(&timed.times, "times")
        )?;
    }
    Ok(())
}

fn write_memory(what: &str, all: &[MemorySummary], out: &mut dyn Write) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let one = |memory: &MemorySummary| {
        let kind = memory
            .kind
            .map(|kind| format!("{kind} "))
            .unwrap_or_default();
        let (operation, count) = (memory.operation, memory.count);
        format!("{kind}{operation} {count} ({})", size(memory.bytes))
    };
    let all: Vec<_> = all.iter().map(one).collect();
    writeln!(out, "    {what}: {}", all.join(", "))
}

fn write_calls(calls: &[CallSummary], omitted: u64, out: &mut dyn Write) -> io::Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    writeln!(out, "    calls")?;
    let shown = |call: &CallSummary| {
        let name = without_version(&call.name);
        printable(&symbols::shorten(name, NAME_WIDTH))
    };
    let names: Vec<_> = calls.iter().map(shown).collect();
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    for (call, name) in calls.iter().zip(&names) {
        write!(out, "{INDENT}{:<8} {name:width$}   ", call.domain)?;
        write!(out, "{}", times(&call.times, "calls"))?;
        match call.failed {
            0 => writeln!(out)?,
            failed => writeln!(out, ", {failed} failed")?,
        }
    }
    if omitted > 0 {
        writeln!(out, "{INDENT}... and {omitted} more functions")?;
    }
    Ok(())
}

fn times(times: &Times, unit: &str) -> String {
    let total = time(times.total_ns as f64);
    let mean = time(times.mean_ns);
    let (min, max) = (time(times.min_ns as f64), time(times.max_ns as f64));
    format!(
        "{} {unit}  {total}  mean {mean}  min {min}  max {max}",
        times.count
    )
}

/// Three or four digits, and the unit that fits.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.3} ms", ns / 1e6),
        ns => format!("{:.3} s", ns / 1e9),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
