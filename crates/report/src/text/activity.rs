//! GPU activity as text.

use gpuprobe_cuda::names::without_version;
use gpuprobe_model::link::PcieLink;
use gpuprobe_model::text::printable;
use gpuprobe_model::text::size;
use std::io::{self, Write};

use super::bandwidth::memories;
use super::page::Page;
use super::table::{Column, ReportTable};
use super::times::{COPY_TIMES, TIMES, cells, gigabytes, percent, time, write_shares};
use crate::activity::{
    ActivitySummary, CallSummary, CopySummary, DeviceSummary, MemorySummary, ProcessSummary, Timed,
};
use crate::words::{Who, dim, plural};

/// Lists of a process are indented by this.
const INDENT: usize = 4;

pub(super) fn write(report: &ActivitySummary, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    if report.records == 0 {
        return page.head("no GPU activity so far", out);
    }
    for process in &report.processes {
        write_process(process, report.link, page, out)?;
    }
    if report.forgotten_processes > 0 {
        let count = report.forgotten_processes;
        let more = format!("... and {count} processes that ended long ago");
        writeln!(out, "{}", dim(&more))?;
    }
    Ok(())
}

fn write_process(
    process: &ProcessSummary,
    link: Option<PcieLink>,
    page: &Page,
    out: &mut dyn Write,
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
    page.head_parts(&[who.title(), records], out)?;
    let width = page.columns;
    if process.exited && !process.complete {
        writeln!(
            out,
            "  what CUPTI had not handed over when it ended is missing"
        )?;
    }
    for device in &process.devices {
        write_device(device, process.observed_seconds, width, out)?;
    }
    write_kernels(process, page, out)?;
    write_copies(&process.copies, link, width, out)?;
    let waits = ("WAITS", "% OF WAIT TIME", "WAITS FOR");
    write_timed(waits, &process.synchronizations, width, out)?;
    write_memory("memory", &process.memory, out)?;
    write_memory("memory pools", &process.memory_pools, out)?;
    write_calls(&process.calls, process.omitted_functions, width, out)?;
    if process.graphs.count > 0 {
        let [total, mean, median, p99, min, max] = cells(Some(&process.graphs));
        let runs = plural(process.graphs.count, "run");
        writeln!(
            out,
            "  graphs: {runs}, {total}, mean {mean}, median {median}, p99 {p99}, min {min}, max {max}"
        )?;
    }
    let cost = ("TIMES", "% OF OVERHEAD", "COST OF TRACING");
    write_timed(cost, &process.overhead, width, out)?;
    write_ranges(process, width, out)
}

fn write_device(
    device: &DeviceSummary,
    observed: f64,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let number = device
        .device
        .map_or("?".into(), |number| number.to_string());
    let name = device.name.as_deref().map(printable).unwrap_or_default();
    let space = if name.is_empty() { "" } else { " " };
    let head = format!("  GPU {number}{space}{name}");
    write_shares(&head, &device.shares, observed * 1e9, width, out)?;
    let recent = device.recent_seconds;
    if recent < observed {
        let (head, of_ns) = ("    since the last report", recent * 1e9);
        write_shares(head, &device.recent_shares, of_ns, width, out)?;
    }
    let gaps = &device.gaps;
    if gaps.count > 0 {
        writeln!(
            out,
            "    idle between work {}, for {}, at most {}",
            plural(gaps.count, "time"),
            time(gaps.total_ns as f64),
            time(gaps.longest_ns as f64),
        )?;
        writeln!(out, "      {}", lengths(&gaps.by_length))?;
    }
    if device.late_records > 0 {
        let late = plural(device.late_records, "record");
        writeln!(out, "    {late} came too late to be part of the shares")?;
    }
    Ok(())
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
    parts.join(", ")
}

fn table(first: &[Column], last: &[Column]) -> ReportTable {
    ReportTable::new(INDENT, &[first, &TIMES, last].concat())
}

/// Says how many rows `--top` left out.
fn rest(count: u64, out: &mut dyn Write) -> io::Result<()> {
    match count {
        0 => Ok(()),
        count => {
            let more = format!("... and {count} more (--top all)");
            writeln!(out, "{:INDENT$}{}", "", dim(&more))
        }
    }
}

fn write_kernels(process: &ProcessSummary, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    let first = [Column::right("RUNS"), Column::right("% KERNEL TIME")];
    let mut table = table(&first, &[Column::kernel(page.full_names)]);
    for kernel in &process.kernels {
        let first = [kernel.times.count.to_string(), percent(kernel.share)];
        let cells = first.into_iter().chain(cells(Some(&kernel.times)));
        table.row(cells.chain([printable(&kernel.name)]));
    }
    table.write(page.columns, out)?;
    rest(process.omitted_kernels, out)
}

fn write_copies(
    copies: &[CopySummary],
    link_of: Option<PcieLink>,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let first = [
        Column::left("DIRECTION"),
        Column::left("MODE"),
        Column::left("MEMORY"),
        Column::right("COPIES"),
        Column::right("BYTES"),
        Column::right("GB/S"),
        Column::right("PEAK"),
    ];
    let link = [
        Column::right("% OF LINK"),
        Column::left("LINK").needs_width(100),
    ];
    let mut table = ReportTable::new(INDENT, &[&first[..], &link, &COPY_TIMES].concat());
    for copy in copies {
        let first = [
            copy.direction.to_owned(),
            copy.mode.unwrap_or_default().to_owned(),
            memories(copy.source, copy.destination),
            copy.times.count.to_string(),
            size(copy.bytes),
            gigabytes(copy.bytes_per_second),
            gigabytes(copy.peak_bytes_per_second),
        ];
        let link = match copy.link_utilisation.zip(link_of.as_ref()) {
            Some((used, link)) => [percent(used), link.to_string()],
            None => Default::default(),
        };
        let cells = first.into_iter().chain(link);
        table.row(cells.chain(self::cells(Some(&copy.times))));
    }
    table.write(width, out)
}

fn write_timed(
    (count, share, name): (&'static str, &'static str, &'static str),
    all: &[Timed],
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let first = [Column::right(count), Column::right(share)];
    let mut table = table(&first, &[Column::text(name)]);
    for timed in all {
        let first = [timed.times.count.to_string(), percent(timed.share)];
        let cells = first.into_iter().chain(cells(Some(&timed.times)));
        table.row(cells.chain([timed.kind.to_owned()]));
    }
    table.write(width, out)
}

fn write_ranges(
    process: &ProcessSummary,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let first = [Column::right("RANGES"), Column::right("% OF RANGE TIME")];
    let mut table = table(&first, &[Column::text("NVTX RANGE")]);
    for range in &process.ranges {
        let first = [range.times.count.to_string(), percent(range.share)];
        let cells = first.into_iter().chain(cells(Some(&range.times)));
        let name = match &range.domain {
            // As nsys has it.
            Some(domain) => format!("{domain}:{}", range.name),
            None => range.name.clone(),
        };
        table.row(cells.chain([printable(&name)]));
    }
    table.write(width, out)?;
    rest(process.omitted_ranges, out)?;
    if process.markers > 0 {
        let open = match process.open_ranges {
            0 => String::new(),
            open => format!(", {} not ended", plural(open, "range")),
        };
        let marks = process.markers;
        writeln!(
            out,
            "  NVTX marks, begins and ends of ranges: {marks}{open}"
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
    writeln!(out, "  {what}: {}", all.join(", "))
}

fn write_calls(
    calls: &[CallSummary],
    omitted: u64,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let first = [Column::right("CALLS"), Column::right("% OF CALL TIME")];
    let last = [
        Column::right("FAILED"),
        Column::left("DOMAIN").needs_width(100),
        Column::text("FUNCTION"),
    ];
    let mut table = table(&first, &last);
    for call in calls {
        let failed = match call.failed {
            0 => String::new(),
            failed => failed.to_string(),
        };
        let first = [call.times.count.to_string(), percent(call.share)];
        let cells = first.into_iter().chain(cells(Some(&call.times)));
        let name = printable(without_version(&call.name));
        table.row(cells.chain([failed, call.domain.to_owned(), name]));
    }
    table.write(width, out)?;
    rest(omitted, out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
