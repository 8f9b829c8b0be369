//! Analyses of a file as text.

use std::io::{self, Write};

use chrono::{DateTime, FixedOffset};

use super::page::Page;
use super::sites::write_lines;
use super::stacks::{LISTING, StackDetail};
use super::table;
use super::work::{copies_and_sets, gpu, shares};
use super::{explain, memleak, pytorch, write_lost};
use crate::analysis::diff::{Diff, StackGrowth};
use crate::analysis::work::GpuTime;
use crate::analysis::{About, Analysis, AnalysisTotals, Anomalies, ProcessRow};
use crate::fold::Folded;
use crate::memleak::Memleak;
use crate::views::tables::Column;
use crate::views::tables::memory::{GrowthRow, SiteRow, growth, signed};
use crate::views::tables::work::{PROCESSES, Work, processes};
use crate::words::{plural, time};
use crate::{Report, SortBy, View, incidents};
use gpuprobe_model::clock::{rfc3339_micros, rfc3339_seconds};
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_recording::Session;

/// Rows of each list of a summary.
const ON_PAGE: usize = 5;

/// Writes the result of an analysis; `top` limits the rows of each list.
pub(crate) fn write(
    analysis: Analysis,
    report: &Report,
    top: usize,
    has_host: bool,
    page: &mut Page<'_>,
) -> io::Result<()> {
    match analysis {
        Analysis::Kernels => write_kernels(report, top, page),
        Analysis::Copies => write_copies(report, top, page),
        Analysis::Calls => write_calls(report, top, page),
        Analysis::Waits => write_waits(report, top, page),
        Analysis::Nvtx => write_ranges(report, top, page),
        Analysis::Processes => write_processes(report, top, page),
        Analysis::Summary | Analysis::Page => write_summary(report, top.min(ON_PAGE), page),
        Analysis::Watermark | Analysis::Leakage => write_memory(report, has_host, page),
        Analysis::Explain => {
            if let Some(explain) = &report.explain {
                explain::write(explain, page)?;
            }
            incidents::write(&report.incidents, report.refused, page)?;
            write_lost(report, page)
        }
    }
}

/// Writes the memory live at the peak, or never freed.
fn write_memory(report: &Report, has_host: bool, page: &mut Page<'_>) -> io::Result<()> {
    let (Some(memleak), Some(about)) = (&report.memleak, &report.about) else {
        return Ok(());
    };
    let totals = about.totals.unwrap_or_default();
    headline(about.analysis, about.time_ns, about.time, &totals, page)?;
    let host = about
        .host
        .filter(|host| has_host && host.total.allocations > 0);
    if let Some(host) = host {
        write_totals("host memory: ", &host, page)?;
    }
    memleak::write_listed(memleak, false, page)?;
    write_findings(about.findings.as_ref(), page)?;
    write_lost(report, page)
}

fn headline(
    what: &str,
    time_ns: Option<i64>,
    time: Option<DateTime<FixedOffset>>,
    sums: &AnalysisTotals,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let bytes = sums.total.bytes;
    let allocations = plural(sums.total.allocations, "allocation");
    let held = format!("{what}: {bytes} bytes ({}) in {allocations}", size(bytes));
    let mut line = Tone::Heading.paint(&held);
    if let Some(time) = time_ns {
        line += &format!(", {:.6} s after the first event", time as f64 / 1e9);
    }
    if let Some(time) = time.as_ref() {
        line += &format!(", {}", rfc3339_micros(time));
    }
    writeln!(page, "{line}")?;
    write_totals("", sums, page)
}

fn write_totals(what: &str, totals: &AnalysisTotals, page: &mut Page<'_>) -> io::Result<()> {
    let parts = [
        ("with call stack", totals.valid),
        ("without", totals.invalid),
        ("by the driver", totals.driver),
    ];
    let parts = parts
        .into_iter()
        .filter(|(_, amount)| amount.allocations > 0);
    let parts = parts.map(|(of, sum)| format!("{of} {} bytes in {}", sum.bytes, sum.allocations));
    let parts: Vec<_> = parts.collect();
    match parts.is_empty() {
        true => Ok(()),
        false => writeln!(page, "  {what}{}", parts.join(", ")),
    }
}

fn write_findings(findings: Option<&Anomalies>, page: &mut Page<'_>) -> io::Result<()> {
    let Some(findings) = findings else {
        return Ok(());
    };
    let odd = [
        (
            findings.double_allocations,
            "allocations at an address that was not freed",
        ),
        (
            findings.unmatched_frees,
            "frees of memory that was not seen to be allocated",
        ),
        (
            findings.size_mismatches,
            "frees of another size than was allocated",
        ),
        (findings.malformed, "malformed rows"),
    ];
    for (count, what) in odd.into_iter().filter(|(count, _)| *count > 0) {
        warn(&format!("{count} {what}"), page)?;
    }
    match findings.events {
        0 => warn("no memory event in what was selected", page),
        _ => Ok(()),
    }
}

/// Writes a line that is about the file.
fn warn(said: &str, page: &mut Page<'_>) -> io::Result<()> {
    let said = format!("note: {said}");
    writeln!(page, "{}", Tone::Warning.paint(&said))
}

/// Writes a list: its first line, and its first rows.
fn list<T>(
    heading: &str,
    columns: &[Column<T>],
    rows: &[T],
    top: usize,
    page: &mut Page<'_>,
) -> io::Result<()> {
    writeln!(page, "{}", Tone::Heading.paint(heading))?;
    rest(columns, rows, top, page)
}

fn rest<T>(columns: &[Column<T>], rows: &[T], top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let shown = rows.len().min(top);
    page.table(columns, &rows[..shown], 2)?;
    match rows.len() - shown {
        0 => Ok(()),
        more => page.note(&format!("  ... and {more} more (--top all)")),
    }
}

fn write_kernels(report: &Report, top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let kernels = Work::kernels_of_file(report);
    let launches: u64 = kernels.iter().map(|kernel| kernel.count).sum();
    let ran = processes(report).map(|process| process.graphs.count);
    let called = report
        .cudatrace
        .as_ref()
        .map_or(0, |trace| trace.graph_launches);
    let graphs = Some(ran.sum()).filter(|ran| *ran > 0).unwrap_or(called);
    let title = format!(
        "kernels: {} of {}, {}",
        plural(launches, "launch"),
        plural(kernels.len() as u64, "kernel"),
        plural(graphs, "graph launch"),
    );
    writeln!(page, "{}", Tone::Heading.paint(&title))?;
    for one in report.about.iter().flat_map(|about| &about.gpus) {
        let GpuTime {
            gaps,
            longest_gap_ns,
            ..
        } = *one;
        let gpu = gpu(&one.device.to_string(), one.name.as_deref());
        let shares = shares(&one.shares, one.observed_ns as f64);
        writeln!(page, "  {gpu}  {shares}")?;
        if gaps > 0 {
            let (gaps, longest) = (plural(gaps, "gap"), time(longest_gap_ns as f64));
            writeln!(page, "    {gaps} between work, the longest {longest}")?;
        }
    }
    rest(Work::KERNELS, &kernels, top, page)
}

fn write_copies(report: &Report, top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let copies = Work::copies_of_file(report);
    let (copied, sets) = copies_and_sets(&copies);
    let bytes = copies.iter().filter(|one| !one.is_set());
    let bytes = bytes.map(|one| one.bytes).fold(0, u64::saturating_add);
    let sets = match sets {
        0 => String::new(),
        sets => format!("; memory sets: {sets}"),
    };
    let title = format!("copies: {copied}, {}{sets}", size(bytes));
    list(&title, Work::COPIES, &copies, top, page)
}

fn write_calls(report: &Report, top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let calls = Work::timed_of_file(report, Work::calls);
    let none = "no API calls in the file";
    write_timed("API calls", none, Work::CALLS, &calls, top, page)
}

fn write_waits(report: &Report, top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let waits = Work::timed_of_file(report, Work::waits);
    let none = "no synchronizations in the file; recordings have them with --activity";
    write_timed("waits for the GPU", none, Work::WAITS, &waits, top, page)
}

fn write_ranges(report: &Report, top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let ranges = Work::timed_of_file(report, Work::ranges);
    let none = "no NVTX ranges in the file; recordings have them with --activity=marker";
    write_timed("NVTX ranges", none, Work::RANGES, &ranges, top, page)?;
    let open = processes(report).map(|process| process.open_ranges);
    match open.sum::<u64>() {
        0 => Ok(()),
        open => writeln!(page, "  {} not ended", plural(open, "range")),
    }
}

fn write_timed<'a>(
    what: &str,
    none: &str,
    columns: &[Column<Work<'a>>],
    rows: &[Work<'a>],
    top: usize,
    page: &mut Page<'_>,
) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(page, "{none}");
    }
    let count: u64 = rows.iter().map(|one| one.count).sum();
    let times = rows.iter().filter_map(|one| one.times.as_ref());
    let together = time(times.map(|times| times.total_ns as f64).sum());
    let title = format!("{what}: {count}, {together} together");
    list(&title, columns, rows, top, page)
}

fn write_processes(report: &Report, top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let rows = process_rows(report);
    list(
        &format!("processes: {}", rows.len()),
        PROCESSES,
        rows,
        top,
        page,
    )
}

fn process_rows(report: &Report) -> &[ProcessRow] {
    let about = report.about.as_ref();
    about
        .and_then(|about| about.processes.as_deref())
        .unwrap_or_default()
}

/// The summary of a file, on one page.
fn write_summary(report: &Report, top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let Some(about) = &report.about else {
        return Ok(());
    };
    let empty = Session::default();
    let session = about.session.as_ref().unwrap_or(&empty);
    write_run(session, about, page)?;
    write_peak_and_leaks(report, about, page)?;
    if !report.incidents.is_empty() {
        writeln!(page)?;
        incidents::write(&report.incidents, report.refused, page)?;
    }
    writeln!(page)?;
    type Write = fn(&Report, usize, &mut Page<'_>) -> io::Result<()>;
    let lists: [(bool, Write); 6] = [
        (process_rows(report).len() > 1, write_processes),
        (
            !Work::kernels_of_file(report).is_empty() || has_graphs(report),
            write_kernels,
        ),
        (!Work::copies_of_file(report).is_empty(), write_copies),
        (
            processes(report).any(|one| !one.calls.is_empty()),
            write_calls,
        ),
        (
            processes(report).any(|one| !one.synchronizations.is_empty()),
            write_waits,
        ),
        (
            processes(report).any(|one| !one.ranges.is_empty()),
            write_ranges,
        ),
    ];
    for (_, write) in lists.into_iter().filter(|(has, _)| *has) {
        write(report, top, page)?;
        writeln!(page)?;
    }
    let overhead = processes(report).flat_map(|process| &process.overhead);
    let overhead = overhead.map(|one| (one.times.count, one.times.total_ns as f64));
    let (count, ns) = overhead.fold((0, 0.0), |(a, b), (count, ns)| (a + count, b + ns));
    if count > 0 {
        let times = plural(count, "time");
        writeln!(page, "cost of tracing: {} in {times}", time(ns))?;
    }
    if let Some(why) = session.notes.get("stopped") {
        let why = printable(why);
        warn(
            &format!("the recording stopped before the run did: {why}"),
            page,
        )?;
    } else if !session.notes.is_empty() {
        match session.notes.get("complete").map(String::as_str) {
            Some("true") => {}
            Some(_) => warn(
                "the recording is not complete: it did not keep up, and events were dropped",
                page,
            )?,
            None => warn(
                "the recording has no end: it was cut off, or still goes on",
                page,
            )?,
        }
    }
    write_findings(about.findings.as_ref(), page)?;
    write_lost(report, page)
}

fn has_graphs(report: &Report) -> bool {
    let launches = report.cudatrace.as_ref();
    launches.is_some_and(|trace| trace.graph_launches > 0)
}

/// Writes the recording program, the command, the start time and the GPUs.
fn write_run(session: &Session, about: &About, page: &mut Page<'_>) -> io::Result<()> {
    // Exports from before 2022 do not name the program that wrote them.
    let product = session.product.as_deref().unwrap_or("Nsight Systems");
    let version = session.version.as_deref().unwrap_or("(version unknown)");
    let tables = session.schema.as_deref();
    let tables = tables.map(|schema| format!(", tables of version {schema}"));
    let written_by = format!("{product} {version}{}", tables.unwrap_or_default());
    writeln!(page, "{}", printable(&written_by))?;
    if let Some(command) = &session.command {
        writeln!(page, "command: {}", printable(command))?;
    }
    if let Some(start) = session.wall(0) {
        writeln!(page, "began: {}", rfc3339_seconds(&start))?;
    }
    if let Some(run_ns) = about.run_ns {
        let processes = about.processes.as_ref().map_or(0, Vec::len) as u64;
        let (ran, processes) = (time(run_ns as f64), plural(processes, "process"));
        writeln!(
            page,
            "run time: {ran} from the first record to the last, {processes}"
        )?;
    }
    for (id, name) in &session.gpus {
        writeln!(page, "{}", gpu(&id.to_string(), Some(name)))?;
    }
    writeln!(page)
}

/// Writes the peak, and the memory that was never freed, with the largest call sites.
fn write_peak_and_leaks(report: &Report, about: &About, page: &mut Page<'_>) -> io::Result<()> {
    let (Some(memleak), Some(findings)) = (&report.memleak, &about.findings) else {
        return writeln!(page, "no memory events");
    };
    let seconds = about.last_ns.unwrap_or(0) as f64 / 1e9;
    writeln!(page, "{} memory events in {seconds:.3} s", findings.events)?;
    let totals = about.totals.unwrap_or_default();
    if let Some(peak) = &about.watermark {
        headline("watermark", peak.time_ns, peak.time, &peak.totals, page)?;
        write_largest(&peak.memleak, page)?;
    }
    headline("leakage", None, None, &totals, page)?;
    write_largest(memleak, page)?;
    let mut processes = memleak.processes.iter();
    processes.try_for_each(|process| pytorch::write(process, &memleak.view, ON_PAGE, page))
}

/// Writes the largest call sites.
fn write_largest(memleak: &Memleak, page: &mut Page<'_>) -> io::Result<()> {
    let sites = SiteRow::all(memleak, SortBy::Bytes, false);
    let (shown, rest) = sites.split_at(sites.len().min(ON_PAGE));
    page.table(SiteRow::COLUMNS, shown, 4)?;
    let bytes = rest.iter().map(|row| row.site.live.bytes());
    match bytes.fold(0, u64::saturating_add) {
        0 => Ok(()),
        bytes => {
            let more = plural(rest.len() as u64, "more site");
            writeln!(page, "    ... {more}, {} (--analysis)", size(bytes))
        }
    }
}

/// Writes the call sites by descending growth, with their stacks if these are asked for.
pub(crate) fn write_diff(
    diff: &Diff,
    view: &View,
    top: usize,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let mut parts = vec![
        ("watermark", diff.watermark, &diff.at_peak),
        ("leakage", diff.leaked, &diff.never_freed),
    ];
    if let Some(tensors) = &diff.tensors {
        parts.push(("tensors, watermark", tensors.watermark, &tensors.at_peak));
        parts.push(("tensors, leakage", tensors.leaked, &tensors.never_freed));
    }
    for (what, [before, after], stacks) in parts {
        let delta = signed(i128::from(after) - i128::from(before));
        let (before, after) = (size(before), size(after));
        let head = format!("{what}: {before} before, {after} after ({delta})");
        writeln!(page, "{}", Tone::Heading.paint(&head))?;
        let changed = stacks.iter().filter(|grown| grown.has_changed());
        let changed: Vec<GrowthRow<'_>> = changed.map(|grown| (what, grown)).collect();
        let shown = &changed[..changed.len().min(top)];
        if changed.is_empty() && !stacks.is_empty() {
            let sites = plural(stacks.len() as u64, "call site");
            writeln!(page, "  no change at {sites}")?;
        }
        let lines = table::lines(&growth(), shown, 2, page.layout);
        for (index, line) in lines.iter().enumerate() {
            writeln!(page, "{line}")?;
            // The first line has the headings.
            if let Some((_, grown)) = index.checked_sub(1).map(|index| shown[index])
                && (view.full_stacks || view.stacks_shown)
            {
                write_stack(grown, view, page)?;
            }
        }
        if changed.len() > shown.len() {
            let (shown, all) = (shown.len(), plural(changed.len() as u64, "site"));
            page.note(&format!("  {shown} of {all} shown (--top all)"))?;
        }
    }
    Ok(())
}

/// Python stacks are folded unless every frame is requested.
fn write_stack(grown: &StackGrowth, view: &View, page: &mut Page<'_>) -> io::Result<()> {
    match Folded::of(&grown.frames).filter(|_| !view.full_stacks) {
        Some(folded) => {
            let stack = StackDetail {
                view,
                layout: page.layout,
                is_python: true,
            };
            write_lines(&stack.folded(&folded, 1, LISTING - 1), page)
        }
        None => {
            let mut lines = grown.stack.iter();
            lines.try_for_each(|line| writeln!(page, "      {}", printable(line)))
        }
    }
}
