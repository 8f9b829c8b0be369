//! Analyses for people.

use std::io::{self, Write};

use super::activity::{Busy, Copies, Kernels};
use super::diff::{Diff, Grown};
use super::groups::Group;
use super::listing::{Listing, Row};
use super::summary::{Summary, largest};
use super::tracker::{Amount, Findings, Totals};
use gpuprobe_model::text::{printable, size};
use gpuprobe_recording::Frame;
use gpuprobe_stacks::symbols;

/// Columns of a kernel's name at most.
const NAME_WIDTH: usize = 64;
/// Call stacks and kernels on the summary's page.
const ON_PAGE: usize = 5;

pub(super) fn listing(listing: &Listing, top: usize, out: &mut dyn Write) -> io::Result<()> {
    headline(listing, out)?;
    if let Some(rows) = &listing.allocations {
        for row in rows.iter().take(top) {
            allocation(row, out)?;
        }
        let rest = rows.iter().skip(top).map(|row| row.bytes);
        omitted(rest, out)?;
    }
    if let Some(groups) = &listing.groups {
        for group in groups.iter().take(top) {
            write_group(group, out)?;
        }
        omitted(groups.iter().skip(top).map(|group| group.bytes), out)?;
    }
    findings(&listing.findings, out)?;
    lost(&listing.lost, out)
}

fn omitted(rest: impl ExactSizeIterator<Item = u64>, out: &mut dyn Write) -> io::Result<()> {
    match rest.len() {
        0 => Ok(()),
        count => {
            let bytes = size(rest.fold(0, u64::saturating_add));
            writeln!(out, "... and {count} more, {bytes}")
        }
    }
}

fn headline(listing: &Listing, out: &mut dyn Write) -> io::Result<()> {
    let Amount { bytes, allocations } = listing.totals.total;
    let human = size(bytes);
    write!(
        out,
        "{}: {bytes} bytes ({human}) in {allocations} allocations",
        listing.analysis
    )?;
    if let Some(time) = listing.time_ns {
        write!(out, ", {:.6} s after the first event", time as f64 / 1e9)?;
    }
    if let Some(time) = &listing.time {
        write!(out, ", {time}")?;
    }
    writeln!(out)?;
    totals("", &listing.totals, out)?;
    match &listing.host {
        Some(host) => totals("host memory: ", host, out),
        None => Ok(()),
    }
}

fn totals(what: &str, totals: &Totals, out: &mut dyn Write) -> io::Result<()> {
    let part = |amount: Amount| format!("{} bytes in {}", amount.bytes, amount.allocations);
    writeln!(
        out,
        "  {what}with call stack {}, without {}, by the driver {}",
        part(totals.valid),
        part(totals.invalid),
        part(totals.driver)
    )
}

fn allocation(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    write!(
        out,
        "{:#x}  {}  {}  {} gpu_{}  pid {}",
        row.address,
        size(row.bytes),
        row.kind,
        row.trace.name(),
        row.device,
        row.pid
    )?;
    if let Some(tid) = row.tid {
        write!(out, ":{tid}")?;
    }
    write!(out, "  at {:.6} s", row.start_ns as f64 / 1e9)?;
    if let Some(operation) = &row.operation {
        write!(out, "  {}", printable(operation))?;
    }
    if let Some(variable) = &row.variable {
        write!(out, "  {}", printable(variable))?;
    }
    writeln!(out)?;
    stack(&row.stack, out)
}

fn write_group(group: &Group, out: &mut dyn Write) -> io::Result<()> {
    let operation = group.operation.as_deref().unwrap_or("?");
    writeln!(
        out,
        "{} bytes ({}) in {} allocations  {}  {}",
        group.bytes,
        size(group.bytes),
        group.allocations,
        group.kind,
        printable(operation)
    )?;
    stack(&group.stack, out)
}

fn stack(frames: &[Frame], out: &mut dyn Write) -> io::Result<()> {
    for frame in frames {
        write!(out, "    [{}]", printable(&frame.function))?;
        if let Some(file) = &frame.file {
            let line = frame.line.map_or(String::new(), |line| format!(":{line}"));
            write!(out, " {}{line}", printable(file))?;
        }
        let inlined = if frame.inlined { " [inlined]" } else { "" };
        writeln!(out, " ({}){inlined}", printable(&frame.module))?;
    }
    Ok(())
}

fn findings(findings: &Findings, out: &mut dyn Write) -> io::Result<()> {
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
        (findings.malformed, "rows that make no sense"),
    ];
    for (count, what) in odd.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "note: {count} {what}")?;
    }
    if findings.events == 0 {
        writeln!(out, "note: no memory event in what was selected")?;
    }
    Ok(())
}

fn lost(lost: &std::collections::BTreeMap<String, u64>, out: &mut dyn Write) -> io::Result<()> {
    if lost.is_empty() {
        return Ok(());
    }
    let parts: Vec<_> = lost
        .iter()
        .map(|(what, count)| format!("{count} {}", printable(what)))
        .collect();
    writeln!(
        out,
        "LOST EVENTS, the figures above are incomplete: {}",
        parts.join(", ")
    )
}

pub(super) fn kernels(kernels: &Kernels, top: usize, out: &mut dyn Write) -> io::Result<()> {
    let (launches, graphs) = (kernels.launches, kernels.graph_launches);
    writeln!(
        out,
        "kernels: {launches} launches of {} kernels, {graphs} graph launches",
        kernels.kernels.len()
    )?;
    gpus(&kernels.gpus, out)?;
    let total: u64 = kernels
        .kernels
        .iter()
        .filter_map(|kernel| kernel.gpu_ns)
        .sum();
    for kernel in kernels.kernels.iter().take(top) {
        let name = printable(&symbols::shorten(&kernel.name, NAME_WIDTH));
        write!(out, "  {:>10}  {name}", kernel.launches)?;
        if let Some(ns) = kernel.gpu_ns {
            let share = ns as f64 * 100.0 / total.max(1) as f64;
            let us = |ns: Option<u64>| ns.unwrap_or(0) as f64 / 1e3;
            write!(
                out,
                "   {:.3} ms on the GPU ({share:.1} %), mean {:.1} us ({:.1} to {:.1})",
                ns as f64 / 1e6,
                kernel.mean_ns().unwrap_or(0.0) / 1e3,
                us(kernel.shortest_ns),
                us(kernel.longest_ns)
            )?;
        }
        if let Some(captured) = kernel.captured.filter(|&captured| captured > 0) {
            write!(out, "   {captured} captured")?;
        }
        writeln!(out)?;
    }
    match kernels.kernels.len().saturating_sub(top) {
        0 => Ok(()),
        rest => writeln!(out, "  ... and {rest} more"),
    }
}

fn gpus(gpus: &[Busy], out: &mut dyn Write) -> io::Result<()> {
    let ms = |ns: u64| ns as f64 / 1e6;
    for gpu in gpus {
        writeln!(
            out,
            "  gpu_{}: busy {:.3} of {:.3} ms ({:.1} %), {} gaps, the longest {:.3} ms",
            gpu.device,
            ms(gpu.busy_ns),
            ms(gpu.span_ns),
            gpu.share * 100.0,
            gpu.gaps,
            ms(gpu.longest_gap_ns)
        )?;
    }
    Ok(())
}

pub(super) fn copies(copies: &[Copies], out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "copies: {}",
        copies.iter().map(|copy| copy.count).sum::<u64>()
    )?;
    for copy in copies {
        write!(
            out,
            "  {:<12} {:<5} {:>10}  {}",
            copy.direction,
            copy.mode,
            copy.count,
            size(copy.bytes)
        )?;
        match (copy.bytes_per_second, copy.ns) {
            (Some(speed), Some(ns)) => {
                let (ms, speed) = (ns as f64 / 1e6, speed / 1e9);
                writeln!(out, "   {ms:.3} ms   {speed:.1} GB/s")?;
            }
            _ => writeln!(out)?,
        }
    }
    Ok(())
}

pub(super) fn summary(page: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let session = &page.session;
    let known = |text: &Option<String>| text.as_deref().map_or("?".to_owned(), printable);
    writeln!(
        out,
        "{} {}, tables of version {}",
        known(&session.product),
        known(&session.version),
        known(&session.schema)
    )?;
    if let Some(command) = &session.command {
        writeln!(out, "command: {}", printable(command))?;
    }
    if let Some(start) = session.wall(0) {
        writeln!(
            out,
            "began: {}",
            gpuprobe_model::clock::rfc3339_seconds(&start)
        )?;
    }
    for (id, name) in &session.gpus {
        writeln!(out, "gpu_{id}: {}", printable(name))?;
    }
    writeln!(out)?;
    match (&page.watermark, page.seconds) {
        (Some(watermark), seconds) => {
            let events = watermark.findings.events;
            writeln!(
                out,
                "{events} memory events in {:.3} s",
                seconds.unwrap_or(0.0)
            )?;
        }
        (None, _) => writeln!(out, "no memory events")?,
    }
    for listing in [&page.watermark, &page.leakage].into_iter().flatten() {
        headline(listing, out)?;
        let (first, rest) = largest(listing.groups.as_deref().unwrap_or_default(), ON_PAGE);
        for group in first {
            let (count, human) = (group.allocations, size(group.bytes));
            writeln!(
                out,
                "    {human:>12} in {count:>6}  {}  {}",
                group.kind,
                printable(&group.site())
            )?;
        }
        if rest > 0 {
            writeln!(out, "    {:>12} elsewhere", size(rest))?;
        }
    }
    writeln!(out)?;
    kernels(&page.kernels, ON_PAGE, out)?;
    writeln!(out)?;
    copies(&page.copies, out)?;
    for process in page
        .activity
        .iter()
        .flat_map(|activity| &activity.processes)
    {
        crate::text::write_calls_and_waits(process, ON_PAGE, out)?;
    }
    if let Some(why) = session.notes.get("stopped") {
        writeln!(
            out,
            "note: the recording stopped before the run did: {}",
            printable(why)
        )?;
    } else if !session.notes.is_empty() && !session.notes.contains_key("complete") {
        writeln!(
            out,
            "note: the recording has no end: it was cut off, or still goes on"
        )?;
    }
    if let Some(watermark) = &page.watermark {
        findings(&watermark.findings, out)?;
    }
    lost(&session.lost, out)
}

pub(super) fn diff(diff: &Diff, top: usize, out: &mut dyn Write) -> io::Result<()> {
    let parts = [
        ("watermark", diff.watermark, &diff.at_peak),
        ("leakage", diff.leaked, &diff.never_freed),
    ];
    for (what, [before, after], stacks) in parts {
        let delta = i128::from(after) - i128::from(before);
        writeln!(
            out,
            "{what}: {before} bytes before, {after} after ({delta:+})"
        )?;
        let changed: Vec<_> = stacks.iter().filter(|grown| grown.delta() != 0).collect();
        for grown in changed.iter().take(top) {
            write_grown(grown, out)?;
        }
        match changed.len().saturating_sub(top) {
            0 => {}
            rest => writeln!(out, "  ... and {rest} more")?,
        }
    }
    Ok(())
}

fn write_grown(grown: &Grown, out: &mut dyn Write) -> io::Result<()> {
    let [before, after] = grown.allocations;
    writeln!(
        out,
        "  {:+} bytes, {before} allocations before, {after} after",
        grown.delta()
    )?;
    for line in &grown.stack {
        writeln!(out, "    {}", printable(line))?;
    }
    Ok(())
}
