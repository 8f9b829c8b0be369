//! Results of analyses as text.

mod listing;
mod summary;
mod work;

use std::io::{self, Write};

use chrono::{DateTime, FixedOffset};

use super::diff::{Diff, StackGrowth};
use super::file::Analysis;
use super::totals::{AnalysisTotals, Anomalies};
use crate::fold::Folded;
use crate::text::page::Page;
use crate::text::sites;
use crate::text::table::{Column, ReportTable};
use crate::words::{dim, plural};
use crate::{Report, View, incidents, names};
use gpuprobe_model::clock::rfc3339_micros;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;

pub(super) use listing::listing;

/// Limits on the size of lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListLength {
    /// Limit on the rows of each list.
    pub(super) top: usize,
    /// Width of a line in columns; `None` for no limit.
    pub(super) width: Option<usize>,
    /// Whether names of kernels are whole.
    pub(super) full_names: bool,
}

/// Writes the result of a question that is not about memory alone.
pub(super) fn question(
    question: Analysis,
    report: &Report,
    lines: ListLength,
    out: &mut dyn Write,
) -> io::Result<()> {
    match question {
        Analysis::Kernels => work::kernels(report, lines, out),
        Analysis::Copies => work::copies(report, lines, out),
        Analysis::Calls => work::calls(report, lines, out),
        Analysis::Waits => work::waits(report, lines, out),
        Analysis::Nvtx => work::ranges(report, lines, out),
        Analysis::Processes => work::processes(report, lines, out),
        Analysis::Summary => summary::summary(report, lines, out),
        Analysis::Explain => explain(report, lines, out),
        Analysis::Watermark | Analysis::Leakage | Analysis::Page => Ok(()),
    }
}

fn explain(report: &Report, lines: ListLength, out: &mut dyn Write) -> io::Result<()> {
    if let Some(explain) = &report.explain {
        let page = Page::new(lines.width, None);
        crate::text::explain::write(explain, &page, out)?;
    }
    incidents::write(&report.incidents, report.refused, lines.width, out)?;
    crate::text::write_lost(report, out)
}

fn headline(
    what: &str,
    time_ns: Option<i64>,
    time: Option<DateTime<FixedOffset>>,
    sums: &AnalysisTotals,
    host: Option<&AnalysisTotals>,
    page: &Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let gpuprobe_model::Total { bytes, allocations } = sums.total;
    let human = size(bytes);
    let allocations = plural(allocations, "allocation");
    let mut parts = vec![format!("{what}: {bytes} bytes ({human}) in {allocations}")];
    if let Some(time) = time_ns {
        parts.push(format!("{:.6} s after the first event", time as f64 / 1e9));
    }
    parts.extend(time.as_ref().map(rfc3339_micros));
    parts[0] = Tone::Heading.paint(&parts[0]);
    page.list(&parts, "  ", out)?;
    totals("", sums, page, out)?;
    match host {
        Some(host) if host.total.allocations > 0 => totals("host memory: ", host, page, out),
        _ => Ok(()),
    }
}

fn totals(what: &str, totals: &AnalysisTotals, page: &Page, out: &mut dyn Write) -> io::Result<()> {
    let parts = [
        ("with call stack", totals.valid),
        ("without", totals.invalid),
        ("by the driver", totals.driver),
    ];
    let parts = parts
        .into_iter()
        .filter(|(_, amount)| amount.allocations > 0);
    let mut parts: Vec<_> = parts
        .map(|(of, amount)| format!("{of} {} bytes in {}", amount.bytes, amount.allocations))
        .collect();
    match parts.first_mut() {
        Some(first) => *first = format!("  {what}{first}"),
        None => return Ok(()),
    }
    page.list(&parts, "  ", out)
}

fn findings(findings: Option<&Anomalies>, out: &mut dyn Write) -> io::Result<()> {
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
        writeln!(out, "{}", note(&format!("{count} {what}")))?;
    }
    if findings.events == 0 {
        writeln!(out, "{}", note("no memory event in what was selected"))?;
    }
    Ok(())
}

/// Writes the first line of a list.
fn heading(line: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", Tone::Heading.paint(line))
}

/// A line that is about the file.
fn note(said: &str) -> String {
    Tone::Warning.paint(&format!("note: {said}"))
}

/// Writes the call sites by descending growth, one per line, with their frames if these are
/// enabled.
pub(super) fn diff(
    diff: &Diff,
    view: &View,
    lines: ListLength,
    out: &mut dyn Write,
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
        heading(&head, out)?;
        let changed: Vec<_> = stacks.iter().filter(|grown| grown.has_changed()).collect();
        let shown = &changed[..changed.len().min(lines.top)];
        if changed.is_empty() && !stacks.is_empty() {
            let sites = plural(stacks.len() as u64, "call site");
            writeln!(out, "  no change at {sites}")?;
        }
        write_grown(shown, view, lines, out)?;
        if changed.len() > shown.len() {
            let (shown, all) = (shown.len(), plural(changed.len() as u64, "site"));
            let rest = format!("{shown} of {all} shown (--top all)");
            writeln!(out, "  {}", dim(&rest))?;
        }
    }
    Ok(())
}

/// A signed size: `+4.00 MiB`.
fn signed(bytes: i128) -> String {
    let sign = if bytes < 0 { '-' } else { '+' };
    let bytes = u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", size(bytes))
}

fn write_grown(
    all: &[&StackGrowth],
    view: &View,
    lines: ListLength,
    out: &mut dyn Write,
) -> io::Result<()> {
    let columns = [
        Column::right("CHANGE"),
        Column::right("ALLOCATIONS"),
        Column::text("WHERE"),
    ];
    let mut table = ReportTable::new(2, &columns);
    for grown in all {
        let [before, after] = grown.allocations;
        table.row([
            signed(grown.delta()),
            format!("{before} -> {after}"),
            printable(&grown.label),
        ]);
    }
    if !view.full_stacks && !view.stacks_shown {
        return table.write(lines.width, out);
    }
    let mut rows = Vec::new();
    table.write(lines.width, &mut rows)?;
    let rows = String::from_utf8_lossy(&rows);
    // The first line has the column names.
    for (index, row) in rows.lines().enumerate() {
        writeln!(out, "{row}")?;
        let grown = index.checked_sub(1).and_then(|index| all.get(index));
        for line in grown
            .into_iter()
            .flat_map(|grown| stack(grown, view, lines))
        {
            writeln!(out, "      {line}")?;
        }
    }
    Ok(())
}

/// The lines of a stack; Python stacks are folded unless every frame is requested.
fn stack(grown: &StackGrowth, view: &View, lines: ListLength) -> Vec<String> {
    let folded = Folded::of(&grown.frames).filter(|_| !view.full_stacks);
    if let Some(folded) = folded {
        return sites::folded(&folded, view, lines.width);
    }
    let columns = sites::room(lines.width).unwrap_or(usize::MAX);
    let shown = |line: &String| names::cut(&printable(line), columns);
    grown.stack.iter().map(shown).collect()
}
