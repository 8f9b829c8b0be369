//! Analyses of a file as text.

use std::io::{self, Write};

use chrono::{DateTime, FixedOffset};
use gpuprobe_model::clock::{rfc3339_micros, rfc3339_seconds};
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_os::terminal::Layout;

use super::page::Page;
use super::stacks::{LISTING, StackDetail};
use super::work::{gpu, shares};
use super::{explain, incidents, memory, sites, write_lost};
use crate::tables::memory::{GrowthRow, SiteRow, growth};
use crate::tables::work::{PROCESSES, columns};
use gpuprobe_report::analysis::diff::{Diff, StackGrowth};
use gpuprobe_report::analysis::{About, Analysis, AnalysisTotals, Anomalies};
use gpuprobe_report::memleak::Memleak;
use gpuprobe_report::words::{plural, signed_size, time};
use gpuprobe_report::work::{Work, WorkList, WorkSum, graph_launches, open_ranges};
use gpuprobe_report::{Report, SortBy, View};

/// Rows of each list of a summary.
const ON_PAGE: usize = 5;

/// Lists, how each is called, and what records it.
const LISTS: [(WorkList, &str, &str); 5] = [
    (WorkList::Kernels, "kernels", ""),
    (WorkList::Copies, "copies", ""),
    (WorkList::Calls, "API calls", "--activity"),
    (WorkList::Waits, "waits for the GPU", "--activity"),
    (WorkList::Ranges, "NVTX ranges", "--activity=marker"),
];

/// Writes the result of an analysis; `top` limits the rows of each list.
pub(crate) fn write(
    analysis: Analysis,
    report: &Report,
    top: usize,
    has_host: bool,
    page: &mut Page<'_>,
) -> io::Result<()> {
    if let Some(list) = analysis.list() {
        return write_list(list, report, top, page);
    }
    match analysis {
        Analysis::Processes => write_processes(report, top, page),
        Analysis::Watermark | Analysis::Leakage => write_memory(report, has_host, page),
        Analysis::Explain => {
            if let Some(explain) = &report.explain {
                explain::write(explain, page)?;
            }
            incidents::write(report, page)?;
            write_lost(report, page)
        }
        _ => write_summary(report, top.min(ON_PAGE), page),
    }
}

/// Writes the memory live at the peak, or never freed.
fn write_memory(report: &Report, has_host: bool, page: &mut Page<'_>) -> io::Result<()> {
    let (Some(memleak), Some(about)) = (&report.memleak, &report.about) else {
        return Ok(());
    };
    let totals = about.totals.unwrap_or_default();
    headline(&about.analysis, about.time_ns, about.time, &totals, page)?;
    if let Some(host) = about.host.filter(|_| has_host) {
        write_totals("host memory: ", &host, page)?;
    }
    memory::write_listed(memleak, false, page)?;
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
    let parts = parts.iter().filter(|(_, sum)| sum.allocations > 0);
    let parts = parts.map(|(of, sum)| format!("{of} {} bytes in {}", sum.bytes, sum.allocations));
    match parts.collect::<Vec<_>>() {
        parts if parts.is_empty() => Ok(()),
        parts => writeln!(page, "  {what}{}", parts.join(", ")),
    }
}

fn write_findings(findings: Option<&Anomalies>, page: &mut Page<'_>) -> io::Result<()> {
    let Some(findings) = findings else {
        return Ok(());
    };
    for (count, what) in [
        (findings.double_allocations, "allocations at used addresses"),
        (findings.unmatched_frees, "frees of unknown memory"),
        (findings.size_mismatches, "frees of another size"),
        (findings.malformed, "malformed rows"),
    ] {
        if count > 0 {
            warn(&format!("{count} {what}"), page)?;
        }
    }
    match findings.events {
        0 => warn("no memory event in what was selected", page),
        _ => Ok(()),
    }
}

/// Writes a line that is about the file.
fn warn(said: &str, page: &mut Page<'_>) -> io::Result<()> {
    writeln!(page, "{}", Tone::Warning.paint(&format!("note: {said}")))
}

fn write_list(list: WorkList, report: &Report, top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let named = LISTS.iter().find(|(one, ..)| *one == list);
    let (name, option) = named.map_or(("", ""), |(_, name, option)| (*name, *option));
    let all = Work::of_file(list, report);
    let sum = WorkSum::of(&all);
    let (count, sets) = (sum.count, sum.sets);
    page.head(&match list {
        WorkList::Kernels => {
            let (launches, kernels) = (plural(count, "launch"), plural(all.len() as u64, "kernel"));
            let graphs = plural(graph_launches(report), "graph launch");
            format!("{name}: {launches} of {kernels}, {graphs}")
        }
        WorkList::Copies if sets > 0 => {
            format!("{name}: {count}, {}; memory sets: {sets}", size(sum.bytes))
        }
        WorkList::Copies => format!("{name}: {count}, {}", size(sum.bytes)),
        _ if all.is_empty() => format!("no {name} in the file; {option} records them"),
        _ => format!("{name}: {count}, {} together", time(sum.ns as f64)),
    })?;
    let gpus = report.about.iter().flat_map(|about| &about.gpus);
    for one in gpus.filter(|_| list == WorkList::Kernels) {
        let gpu = gpu(Some(one.device), one.name.as_deref());
        let shares = shares(&one.shares, one.observed_ns as f64);
        writeln!(page, "  {gpu}  {shares}")?;
        if one.gaps > 0 {
            let (gaps, longest) = (plural(one.gaps, "gap"), time(one.longest_gap_ns as f64));
            writeln!(page, "    {gaps} between work, the longest {longest}")?;
        }
    }
    page.list(columns(list), &all, top, 2)?;
    match open_ranges(report) {
        open if open > 0 && list == WorkList::Ranges => {
            writeln!(page, "  {} not ended", plural(open, "range"))
        }
        _ => Ok(()),
    }
}

fn write_processes(report: &Report, top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let rows = report.about.iter().flat_map(|about| &about.processes);
    rows.into_iter().try_for_each(|rows| {
        page.head(&format!("processes: {}", rows.len()))?;
        page.list(PROCESSES, rows, top, 2)
    })
}

/// The summary of a file, on one page.
fn write_summary(report: &Report, top: usize, page: &mut Page<'_>) -> io::Result<()> {
    let Some(about) = &report.about else {
        return Ok(());
    };
    write_run(about, page)?;
    write_peak_and_leaks(report, about, page)?;
    if !report.incidents.is_empty() {
        writeln!(page)?;
        incidents::write(report, page)?;
    }
    writeln!(page)?;
    if about.processes.as_ref().is_some_and(|all| all.len() > 1) {
        write_processes(report, top, page)?;
        writeln!(page)?;
    }
    for (list, ..) in LISTS {
        let has_graphs = list == WorkList::Kernels && graph_launches(report) > 0;
        if has_graphs || !Work::of_file(list, report).is_empty() {
            write_list(list, report, top, page)?;
            writeln!(page)?;
        }
    }
    let WorkSum { count, ns, .. } = WorkSum::of(&Work::of_file(WorkList::Overhead, report));
    if count > 0 {
        let times = plural(count, "time");
        writeln!(page, "cost of tracing: {} in {times}", time(ns as f64))?;
    }
    let notes = about.session.iter().map(|session| &session.notes);
    for notes in notes.filter(|notes| !notes.is_empty()) {
        match (notes.get("stopped"), notes.get("complete")) {
            (Some(why), _) => {
                let why = printable(why);
                warn(
                    &format!("the recording stopped before the run did: {why}"),
                    page,
                )
            }
            (None, Some(complete)) if complete == "true" => Ok(()),
            (None, Some(_)) => warn("the recording is not complete: events were dropped", page),
            (None, None) => warn(
                "the recording has no end: it was cut off, or still goes on",
                page,
            ),
        }?;
    }
    write_findings(about.findings.as_ref(), page)?;
    write_lost(report, page)
}

/// Writes the recording program, the command, the start time and the GPUs.
fn write_run(about: &About, page: &mut Page<'_>) -> io::Result<()> {
    let session = about.session.clone().unwrap_or_default();
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
        writeln!(page, "{}", gpu(u32::try_from(*id).ok(), Some(name)))?;
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
    processes
        .try_for_each(|process| sites::write_tensors(process, &memleak.options.view, ON_PAGE, page))
}

/// Writes the largest call sites.
fn write_largest(memleak: &Memleak, page: &mut Page<'_>) -> io::Result<()> {
    let sites = SiteRow::all(memleak, SortBy::Bytes, false);
    let (shown, rest) = sites.split_at(sites.len().min(ON_PAGE));
    page.table(SiteRow::columns(), shown, 4)?;
    match rest.len() {
        0 => Ok(()),
        more => page.note(&format!("    ... and {more} more (--analysis)")),
    }
}

/// Writes the call sites by descending growth, with their stacks if these are asked for.
pub(crate) fn write_diff(
    diff: &Diff,
    view: &View,
    top: usize,
    page: &mut Page<'_>,
) -> io::Result<()> {
    for (what, [before, after], stacks) in diff.lists() {
        let delta = signed_size(i128::from(after) - i128::from(before));
        let (before, after) = (size(before), size(after));
        let name = what.replace('_', " ");
        page.head(&format!("{name}: {before} before, {after} after ({delta})"))?;
        let changed = stacks.iter().filter(|grown| grown.has_changed());
        let changed: Vec<GrowthRow<'_>> = changed.map(|grown| (what, grown)).collect();
        let (shown, rest) = changed.split_at(changed.len().min(top));
        if changed.is_empty() && !stacks.is_empty() {
            let sites = plural(stacks.len() as u64, "call site");
            writeln!(page, "  no change at {sites}")?;
        }
        let has_stacks = view.full_stacks || view.stacks_shown;
        let layout = page.layout;
        page.detailed(growth(), shown, |(_, grown)| match has_stacks {
            true => stack(grown, view, layout),
            false => Vec::new(),
        })?;
        page.more(rest.len() as u64, 2)?;
    }
    Ok(())
}

/// Python stacks are folded unless every frame is requested.
fn stack(grown: &StackGrowth, view: &View, layout: Layout) -> Vec<String> {
    match grown.folded.as_ref().filter(|_| !view.full_stacks) {
        Some(folded) => {
            let is_python = true;
            let detail = StackDetail {
                view,
                layout,
                is_python,
            };
            detail.folded(folded, 1, LISTING - 1)
        }
        None => {
            let lines = grown.stack.iter();
            lines
                .map(|line| format!("      {}", printable(line)))
                .collect()
        }
    }
}
