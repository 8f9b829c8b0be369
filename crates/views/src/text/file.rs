//! Analyses of a file as text.

use chrono::{DateTime, FixedOffset};
use gpuprobe_model::clock::{rfc3339_micros, rfc3339_seconds};
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_os::terminal::Layout;

use super::page::{Page, commas, counts};
use super::stacks::{LISTING, folded};
use super::work::{shares, write_copy_sites};
use super::{explain, gpu, incidents, memory, sites, write_lost};
use crate::tables::memory::{GrowthRow, SiteRow, growth};
use crate::tables::work::{PROCESSES, columns};
use gpuprobe_analysis::Analysis;
use gpuprobe_analysis::diff::{Diff, StackGrowth};
use gpuprobe_report::about::{About, AnalysisTotals};
use gpuprobe_report::memleak::Memleak;
use gpuprobe_report::words::{amount, plural, signed_size, time};
use gpuprobe_report::work::{Work, WorkList, WorkSum, graph_launches, open_ranges};
use gpuprobe_report::{Report, SortBy, View};

/// Rows of each list of a summary.
const ON_PAGE: usize = 5;

/// Lists, and how each is called.
const LISTS: [(WorkList, &str); 5] = [
    (WorkList::Kernels, "kernels"),
    (WorkList::Copies, "copies"),
    (WorkList::Calls, "API calls"),
    (WorkList::Waits, "waits for the GPU"),
    (WorkList::Ranges, "NVTX ranges"),
];

/// Writes the result of an analysis; `top` limits the rows of each list.
pub(crate) fn write(
    analysis: Analysis,
    report: &Report,
    top: usize,
    has_host: bool,
    page: &mut Page,
) {
    if let Some(list) = analysis.list() {
        return write_list(list, report, top, page);
    }
    match analysis {
        Analysis::Processes => write_processes(report, top, page),
        Analysis::Watermark | Analysis::Leakage => write_memory(report, has_host, page),
        Analysis::Explain => {
            if let Some(explain) = &report.explain {
                explain::write(explain, page);
            }
            incidents::write(report, page);
            write_lost(report, page);
        }
        _ => write_summary(report, top.min(ON_PAGE), page),
    }
}

/// Writes the memory live at the peak, or never freed.
fn write_memory(report: &Report, has_host: bool, page: &mut Page) {
    let (Some(memleak), Some(about)) = (&report.memleak, &report.about) else {
        return;
    };
    let totals = about.totals.unwrap_or_default();
    let what = match about.time_ns {
        Some(_) => "watermark",
        None => at_end(about),
    };
    headline(what, about.time_ns, about.time, &totals, page);
    if let Some(host) = about.host.filter(|_| has_host) {
        write_totals("host memory: ", &host, page);
    }
    memory::write_listed(memleak, false, page);
    write_findings(about, page);
    write_lost(report, page);
}

/// Memory that is live at the end, or where the range ends.
fn at_end(about: &About) -> &'static str {
    match about.ends_early {
        true => "live at the end of the range",
        false => "never freed",
    }
}

fn headline(
    what: &str,
    time_ns: Option<i64>,
    time: Option<DateTime<FixedOffset>>,
    sums: &AnalysisTotals,
    page: &mut Page,
) {
    let verbose = page.layout.verbose;
    let held = amount(sums.total.bytes, sums.total.allocations);
    let mut line = Tone::Heading.paint(&format!("{what}: {held}"));
    if let Some(time) = time_ns {
        let digits = if verbose { 6 } else { 1 };
        line += &format!(", {:.digits$} s after the first event", time as f64 / 1e9);
    }
    if let Some(time) = time.as_ref() {
        line += ", at ";
        line += &match verbose {
            true => rfc3339_micros(time),
            false => time.format("%H:%M:%S").to_string(),
        };
    }
    page.line(line);
    if verbose || sums.valid != sums.total {
        write_totals("", sums, page);
    }
}

fn write_totals(what: &str, totals: &AnalysisTotals, page: &mut Page) {
    let parts = [
        ("with call stack", totals.valid),
        ("without", totals.invalid),
        ("by the driver", totals.driver),
    ];
    let parts = parts.iter().filter(|(_, sum)| sum.allocations > 0);
    let parts = parts.map(|(of, sum)| format!("{of} {}", amount(sum.bytes, sum.allocations)));
    match commas(parts) {
        nothing if nothing.is_empty() => {}
        parts => page.line(format!("  {what}{parts}")),
    }
}

fn write_findings(about: &About, page: &mut Page) {
    let Some(findings) = about.findings else {
        return;
    };
    for note in counts(&[
        (findings.double_allocations, "allocations at used addresses"),
        (findings.unmatched_frees, "frees of unknown memory"),
        (findings.size_mismatches, "frees of another size"),
        (findings.malformed, "malformed rows"),
    ]) {
        page.warn(format!("note: {note}"));
    }
    if findings.events == 0 {
        page.warn("note: no memory event in what was selected");
    }
}

fn write_list(list: WorkList, report: &Report, top: usize, page: &mut Page) {
    let named = LISTS.iter().find(|(one, _)| *one == list);
    let name = named.map_or("", |(_, name)| name);
    let all = Work::of_file(list, report);
    let sum = WorkSum::of(&all);
    let (count, sets) = (sum.count, sum.sets);
    let recorded = report.about.as_ref().and_then(|about| about.recorded);
    let missing = recorded.and_then(|modes| match list {
        WorkList::Kernels if !modes.cudatrace && !modes.activity => Some("--cudatrace"),
        WorkList::Copies if !modes.bandwidth_util && !modes.activity => Some("--bandwidth-util"),
        _ => None,
    });
    if let Some(option) = missing {
        return page.head(&format!("{name}: not recorded; {option} records them"));
    }
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
        _ if all.is_empty() => format!("no {name} in the file; --activity records them"),
        _ => format!("{name}: {count}, {} together", time(sum.ns as f64)),
    });
    let gpus = report.about.iter().flat_map(|about| &about.gpus);
    for one in gpus.filter(|_| list == WorkList::Kernels) {
        let gpu = gpu(Some(one.device), one.name.as_deref());
        let parts = shares(&one.shares, one.observed_ns as f64);
        page.line(format!("  {gpu}  {parts}"));
        if one.gaps > 0 {
            let (gaps, longest) = (plural(one.gaps, "gap"), time(one.longest_gap_ns as f64));
            page.line(format!("    {gaps} between work, the longest {longest}"));
        }
    }
    page.list(columns(list), &all, top, 2);
    let copies = report.bandwidth_util.iter();
    for copies in copies.filter(|_| list == WorkList::Copies) {
        for sites in copies.sites.chunk_by(|a, b| a.pid == b.pid) {
            page.line(format!("  call sites of PID {}:", sites[0].pid));
            let (shown, rest) = sites.split_at(sites.len().min(top));
            write_copy_sites(shown, page);
            page.more(rest.len() as u64, 2);
        }
    }
    let open = open_ranges(report);
    if open > 0 && list == WorkList::Ranges {
        page.line(format!("  {} not ended", plural(open, "range")));
    }
}

fn write_processes(report: &Report, top: usize, page: &mut Page) {
    for rows in report.about.iter().flat_map(|about| &about.processes) {
        page.head(&format!("processes: {}", rows.len()));
        page.list(PROCESSES, rows, top, 2);
    }
}

/// The summary of a file, on one page.
fn write_summary(report: &Report, top: usize, page: &mut Page) {
    let Some(about) = &report.about else {
        return;
    };
    write_run(about, page);
    write_peak_and_leaks(report, about, page);
    if !report.incidents.is_empty() {
        page.part();
        incidents::write(report, page);
    }
    page.part();
    if about.processes.as_ref().is_some_and(|all| all.len() > 1) {
        write_processes(report, top, page);
        page.part();
    }
    for (list, _) in LISTS {
        let has_graphs = list == WorkList::Kernels && graph_launches(report) > 0;
        if has_graphs || !Work::of_file(list, report).is_empty() {
            write_list(list, report, top, page);
            page.part();
        }
    }
    let WorkSum { count, ns, .. } = WorkSum::of(&Work::of_file(WorkList::Overhead, report));
    if count > 0 {
        let times = plural(count, "time");
        page.line(format!("cost of tracing: {} in {times}", time(ns as f64)));
    }
    let notes = about.session.iter().map(|session| &session.notes);
    for notes in notes.filter(|notes| !notes.is_empty()) {
        let what = match (notes.get("stopped"), notes.get("complete")) {
            (Some(why), _) => format!("stopped before the run did: {}", printable(why)),
            (None, Some(complete)) if complete == "true" => continue,
            (None, Some(_)) => "is not complete: events were dropped".into(),
            (None, None) => "has no end: it was cut off, or still goes on".into(),
        };
        page.warn(format!("note: the recording {what}"));
    }
    write_findings(about, page);
    write_lost(report, page);
}

/// Writes the recording program, the command, the start time and the GPUs.
fn write_run(about: &About, page: &mut Page) {
    let session = about.session.clone().unwrap_or_default();
    // Exports from before 2022 do not name the program that wrote them.
    let product = session.product.as_deref().unwrap_or("Nsight Systems");
    let version = session.version.as_deref().unwrap_or("(version unknown)");
    page.line(printable(&format!("{product} {version}")));
    if let Some(command) = &session.command {
        page.line(format!("command: {}", printable(command)));
    }
    if let Some(start) = session.wall(0) {
        page.line(format!("began: {}", rfc3339_seconds(&start)));
    }
    if let Some(run_ns) = about.run_ns {
        let processes = about.processes.as_ref().map_or(0, Vec::len) as u64;
        let (ran, processes) = (time(run_ns as f64), plural(processes, "process"));
        page.line(format!("run time: {ran}, {processes}"));
    }
    for (id, name) in &session.gpus {
        page.line(gpu(u32::try_from(*id).ok(), Some(name)));
    }
    page.part();
}

/// Writes the peak, and the memory that was never freed, with the largest call sites.
fn write_peak_and_leaks(report: &Report, about: &About, page: &mut Page) {
    let (Some(memleak), Some(findings)) = (&report.memleak, &about.findings) else {
        return page.line("no memory events");
    };
    page.line(plural(findings.events, "memory event"));
    if let Some(peak) = &about.watermark {
        headline("watermark", peak.time_ns, peak.time, &peak.totals, page);
        write_largest(&peak.memleak, page);
    }
    let totals = about.totals.unwrap_or_default();
    headline(at_end(about), None, None, &totals, page);
    write_largest(memleak, page);
    for process in &memleak.processes {
        sites::write_tensors(process, &memleak.options.view, ON_PAGE, page);
    }
}

/// Writes the largest call sites.
fn write_largest(memleak: &Memleak, page: &mut Page) {
    let sites = SiteRow::all(memleak, SortBy::Bytes, false);
    page.list(SiteRow::columns(), &sites, ON_PAGE, 4);
}

/// Writes the call sites by descending growth, with their stacks if these are asked for.
pub(crate) fn write_diff(diff: &Diff, view: &View, top: usize, page: &mut Page) {
    for (what, [before, after], stacks) in diff.lists() {
        let delta = signed_size(i128::from(after) - i128::from(before));
        let (before, after) = (size(before), size(after));
        let name = what.replace('_', " ");
        page.head(&format!("{name}: {before} before, {after} after ({delta})"));
        let changed = stacks.iter().filter(|grown| grown.has_changed());
        let changed: Vec<GrowthRow<'_>> = changed.map(|grown| (what, grown)).collect();
        let (shown, rest) = changed.split_at(changed.len().min(top));
        if changed.is_empty() && !stacks.is_empty() {
            let sites = plural(stacks.len() as u64, "call site");
            page.line(format!("  no change at {sites}"));
        }
        let layout = page.layout;
        page.detailed(growth(), shown, |(_, grown)| match view.shows_stacks() {
            true => stack(grown, view, layout),
            false => Vec::new(),
        });
        page.more(rest.len() as u64, 2);
    }
}

/// Python stacks are folded unless every frame is requested.
fn stack(grown: &StackGrowth, view: &View, layout: Layout) -> Vec<String> {
    match grown.folded.as_ref().filter(|_| !view.full_stacks) {
        Some(stack) => folded(stack, 1, view.depth, layout, LISTING - 1),
        None => {
            let lines = grown.stack.iter().map(|line| printable(line));
            lines.map(|line| format!("      {line}")).collect()
        }
    }
}
