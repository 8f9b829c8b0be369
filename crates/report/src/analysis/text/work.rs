//! Lists of kernels, copies, calls, waits, ranges and processes.

use std::io::{self, Write};

use super::{ListLength, heading};
use crate::Report;
use crate::analysis::merged::{Copies, MergedCalls, MergedKernel, timed_processes};
use crate::analysis::work::GpuTime;
use crate::text::bandwidth::memories;
use crate::text::table::{Column, ReportTable};
use crate::text::times::{COPY_TIMES, TIMES, cells, gigabytes, percent, time, write_shares};
use crate::words::{dim, plural};
use gpuprobe_cuda::Direction;
use gpuprobe_cuda::names::without_version;
use gpuprobe_model::text::{printable, size};

/// Indentation of lists, in columns.
const INDENT: usize = 2;

/// Joins the columns selected for a table.
fn columns(parts: &[&[Column]]) -> Vec<Column> {
    parts.concat()
}

/// Writes the number of rows omitted.
fn rest(count: usize, top: usize, out: &mut dyn Write) -> io::Result<()> {
    match count.saturating_sub(top) {
        0 => Ok(()),
        rest => {
            let rest = format!("... and {rest} more (--top all)");
            writeln!(out, "  {}", dim(&rest))
        }
    }
}

/// Kernels that ran on the GPU with measured times, or else kernels launched.
pub(super) fn kernels(report: &Report, lines: ListLength, out: &mut dyn Write) -> io::Result<()> {
    let kernels = MergedKernel::all(report);
    let launches: u64 = kernels.iter().map(|kernel| kernel.launches).sum();
    let ran = timed_processes(report).map(|process| process.graphs.count);
    let ran: u64 = ran.sum();
    let called = report
        .cudatrace
        .as_ref()
        .map_or(0, |trace| trace.graph_launches);
    let graphs = if ran > 0 { ran } else { called };
    let title = format!(
        "kernels: {} of {}, {}",
        plural_of(launches, "launch", "launches"),
        plural(kernels.len() as u64, "kernel"),
        plural_of(graphs, "graph launch", "graph launches"),
    );
    heading(&title, out)?;
    let all = report.about.as_ref().map_or(&[][..], |about| &about.gpus);
    gpus(all, lines.width, out)?;
    let are_timed = kernels.iter().any(|kernel| kernel.times.is_some());
    let counted = if are_timed {
        [Column::right("RUNS"), Column::right("% KERNEL TIME")]
    } else {
        [Column::right("LAUNCHES"), Column::right("% OF LAUNCHES")]
    };
    let last = [Column::right("CAPTURED"), Column::kernel(lines.full_names)];
    let mut table = ReportTable::new(INDENT, &columns(&[&counted, &TIMES, &last]));
    for kernel in kernels.iter().take(lines.top) {
        let captured = kernel.captured.filter(|&captured| captured > 0);
        let first = [kernel.launches.to_string(), percent(kernel.share)];
        let last = [
            captured.map_or_else(String::new, |captured| captured.to_string()),
            printable(kernel.name),
        ];
        let times = cells(kernel.times.as_ref());
        table.row(first.into_iter().chain(times).chain(last));
    }
    table.write(lines.width, out)?;
    rest(kernels.len(), lines.top, out)
}

/// A number with its noun: `1 launch`, `2 launches`.
pub(super) fn plural_of(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn gpus(gpus: &[GpuTime], width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    for gpu in gpus {
        let name = gpu.name.as_deref().map(printable).unwrap_or_default();
        let space = if name.is_empty() { "" } else { " " };
        let head = format!("  GPU {}{space}{name}", gpu.device);
        write_shares(&head, &gpu.shares, gpu.observed_ns as f64, width, out)?;
        if gpu.gaps > 0 {
            let (gaps, longest) = (plural(gpu.gaps, "gap"), time(gpu.longest_gap_ns as f64));
            writeln!(out, "    {gaps} between work, the longest {longest}")?;
        }
    }
    Ok(())
}

/// Copies that ran on the GPU with measured times, or else copy calls.
pub(super) fn copies(report: &Report, lines: ListLength, out: &mut dyn Write) -> io::Result<()> {
    let copies = Copies::all(report);
    let sum = |sets: bool| {
        let all = copies.iter();
        let all = all.filter(|copies| (copies.which.direction == Direction::Set.name()) == sets);
        let all = all.map(|copies| (copies.count, copies.bytes));
        all.fold((0, 0), |(count, bytes): (u64, u64), one| {
            (count + one.0, bytes.saturating_add(one.1))
        })
    };
    let ((copied, bytes), (sets, _)) = (sum(false), sum(true));
    let sets = match sets {
        0 => String::new(),
        sets => format!("; memory sets: {sets}"),
    };
    heading(&format!("copies: {copied}, {}{sets}", size(bytes)), out)?;
    let are_timed = copies.iter().any(|copies| copies.times.is_some());
    let share = if are_timed {
        "% COPY TIME"
    } else {
        "% OF BYTES"
    };
    let first = [
        Column::left("DIRECTION"),
        Column::left("MODE"),
        Column::left("MEMORY"),
        Column::right(if are_timed { "COPIES" } else { "CALLS" }),
        Column::right("BYTES"),
        Column::right("GB/S"),
        Column::right("PEAK"),
        Column::right(share).needs_width(100),
    ];
    let mut table = ReportTable::new(INDENT, &columns(&[&first, &COPY_TIMES]));
    for copies in copies.iter().take(lines.top) {
        let which = copies.which;
        let first = [
            which.direction.to_owned(),
            which.mode.unwrap_or_default().to_owned(),
            memories(which.source, which.destination),
            copies.count.to_string(),
            size(copies.bytes),
            gigabytes(copies.bytes_per_second()),
            gigabytes(copies.peak),
            percent(copies.share),
        ];
        table.row(first.into_iter().chain(cells(copies.times.as_ref())));
    }
    table.write(lines.width, out)?;
    rest(copies.len(), lines.top, out)
}

const RANGE: &str = "RANGE";

/// Texts for a list of [`MergedCalls`].
struct Words {
    /// Title of the list: `API calls`.
    title: &'static str,
    count: &'static str,
    share: &'static str,
    name: &'static str,
    /// Text for an empty list.
    none: &'static str,
}

/// Calls of the driver and the runtime by function.
pub(super) fn calls(report: &Report, lines: ListLength, out: &mut dyn Write) -> io::Result<()> {
    let words = Words {
        title: "API calls",
        count: "CALLS",
        share: "% OF CALL TIME",
        name: "FUNCTION",
        none: "no API calls in the file",
    };
    list(&words, &MergedCalls::calls(report), lines, out)
}

/// Waits for the GPU by kind.
pub(super) fn waits(report: &Report, lines: ListLength, out: &mut dyn Write) -> io::Result<()> {
    let words = Words {
        title: "waits for the GPU",
        count: "WAITS",
        share: "% OF WAIT TIME",
        name: "FOR",
        none: "no synchronizations in the file; recordings have them with --activity",
    };
    list(&words, &MergedCalls::waits(report), lines, out)
}

/// NVTX ranges by name.
pub(super) fn ranges(report: &Report, lines: ListLength, out: &mut dyn Write) -> io::Result<()> {
    let words = Words {
        title: "NVTX ranges",
        count: "RANGES",
        share: "% OF RANGE TIME",
        name: RANGE,
        none: "no NVTX ranges in the file; recordings have them with --activity=marker",
    };
    list(&words, &MergedCalls::ranges(report), lines, out)?;
    let open: u64 = timed_processes(report)
        .map(|process| process.open_ranges)
        .sum();
    match open {
        0 => Ok(()),
        open => writeln!(out, "  {} not ended", plural(open, "range")),
    }
}

fn list(
    words: &Words,
    all: &[MergedCalls<'_>],
    lines: ListLength,
    out: &mut dyn Write,
) -> io::Result<()> {
    if all.is_empty() {
        return writeln!(out, "{}", words.none);
    }
    let count: u64 = all.iter().map(|one| one.times.count).sum();
    let total_ns: f64 = all.iter().map(|one| one.times.total_ns as f64).sum();
    let (title, together) = (words.title, time(total_ns));
    heading(&format!("{title}: {count}, {together} together"), out)?;
    let first = [Column::right(words.count), Column::right(words.share)];
    let last = [
        Column::right("FAILED"),
        Column::left("DOMAIN").needs_width(100),
        Column::text(words.name),
    ];
    let mut table = ReportTable::new(INDENT, &columns(&[&first, &TIMES, &last]));
    for one in all.iter().take(lines.top) {
        let failed = match one.failed {
            0 => String::new(),
            failed => failed.to_string(),
        };
        let first = [one.times.count.to_string(), percent(one.share)];
        let last = match words.name {
            // Format of nsys.
            RANGE if !one.domain.is_empty() => {
                let name = format!("{}:{}", one.domain, one.name);
                [failed, String::new(), printable(&name)]
            }
            RANGE => [failed, String::new(), printable(one.name)],
            _ => {
                let name = without_version(one.name);
                [failed, printable(one.domain), printable(name)]
            }
        };
        let times = cells(Some(&one.times));
        table.row(first.into_iter().chain(times).chain(last));
    }
    table.write(lines.width, out)?;
    rest(all.len(), lines.top, out)
}

pub(super) fn processes(report: &Report, lines: ListLength, out: &mut dyn Write) -> io::Result<()> {
    let about = report.about.iter();
    let all: Vec<_> = about
        .flat_map(|about| about.processes.iter().flatten())
        .collect();
    heading(&format!("processes: {}", all.len()), out)?;
    let columns = [
        Column::right("PID"),
        Column::right("UID").needs_width(100),
        Column::right("RUN TIME"),
        Column::right("PEAK"),
        Column::right("NEVER FREED"),
        Column::right("LAUNCHES"),
        Column::right("GRAPHS").needs_width(120),
        Column::right("KERNEL TIME").needs_width(100),
        Column::right("COPIES"),
        Column::right("COPIED").needs_width(100),
        Column::text("PROCESS"),
    ];
    let mut table = ReportTable::new(INDENT, &columns);
    for process in all.iter().take(lines.top) {
        let number = |count: u64| match count {
            0 => String::new(),
            count => count.to_string(),
        };
        let time_of = |ns: u64| time(ns as f64);
        table.row([
            process.pid.to_string(),
            process.uid.map_or_else(String::new, |uid| uid.to_string()),
            time_of(process.run_ns),
            size(process.peak_bytes),
            size(process.never_freed_bytes),
            process.launches.to_string(),
            number(process.graph_launches),
            process.kernel_ns.map_or_else(String::new, time_of),
            process.copies.to_string(),
            size(process.copied_bytes),
            printable(process.comm.as_deref().unwrap_or("?")),
        ]);
    }
    table.write(lines.width, out)?;
    rest(all.len(), lines.top, out)
}

/// The overhead of tracing.
pub(super) fn overhead(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let all = timed_processes(report).flat_map(|process| &process.overhead);
    let (mut count, mut total_ns) = (0, 0.0);
    for overhead in all {
        count += overhead.times.count;
        total_ns += overhead.times.total_ns as f64;
    }
    match count {
        0 => Ok(()),
        _ => {
            let times = plural(count, "time");
            writeln!(out, "\ncost of tracing: {} in {times}", time(total_ns))
        }
    }
}
