//! Analyses for people.

use std::collections::HashMap;
use std::io::{self, Write};

use chrono::{DateTime, FixedOffset};

use super::answer::{Answer, Copies, Kernel, Row, kinds, operation, sites};
use super::diff::{Diff, Grown};
use super::totals::{Amount, Findings, Totals};
use super::work::Gpu;
use super::{About, AtPeak};
use crate::memleak::{Memleak, ProcessReport, SiteReport, ThreadReport};
use crate::{Group, Report, Sort};
use gpuprobe_model::clock::{rfc3339_micros, rfc3339_seconds};
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};
use gpuprobe_recording::Session;
use gpuprobe_stacks::symbols;

/// Columns of a kernel's name at most.
const NAME_WIDTH: usize = 64;
/// Call stacks and kernels on the summary's page.
const ON_PAGE: usize = 5;

pub(super) fn listing(answer: &Answer, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let (Some(memleak), Some(about)) = (&report.memleak, &report.about) else {
        return Ok(());
    };
    let (totals, host) = (
        about.totals.unwrap_or_default(),
        about.host.filter(|_| answer.host),
    );
    headline(
        about.analysis,
        about.time_ns,
        about.time,
        &totals,
        host.as_ref(),
        out,
    )?;
    let top = answer.top;
    match answer.view.group {
        Some(Group::Stack) => {
            let sites = answer.sites(memleak);
            for (_, site) in sites.iter().take(top) {
                write_site(site, out)?;
            }
            omitted(
                sites.iter().skip(top).map(|(_, site)| site.live.bytes()),
                out,
            )?;
        }
        Some(Group::Thread) => {
            for process in &memleak.processes {
                for thread in &process.threads {
                    write_thread(process, thread, about, answer, out)?;
                }
            }
        }
        None => {
            let rows = answer.rows(memleak);
            for row in rows.iter().take(top) {
                write_allocation(row, about, out)?;
                stack(row.stack(), out)?;
            }
            omitted(rows.iter().skip(top).map(|row| row.allocation.bytes), out)?;
        }
    }
    for left in memleak
        .processes
        .iter()
        .filter_map(|process| process.filtered)
    {
        crate::text::write_filtered("", &left, out)?;
    }
    findings(about.findings.as_ref(), out)?;
    crate::text::write_lost(&report.lost, out)
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

fn headline(
    what: &str,
    time_ns: Option<i64>,
    time: Option<DateTime<FixedOffset>>,
    sums: &Totals,
    host: Option<&Totals>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Amount { bytes, allocations } = sums.total;
    let human = size(bytes);
    write!(
        out,
        "{what}: {bytes} bytes ({human}) in {allocations} allocations"
    )?;
    if let Some(time) = time_ns {
        write!(out, ", {:.6} s after the first event", time as f64 / 1e9)?;
    }
    if let Some(time) = &time {
        write!(out, ", {}", rfc3339_micros(time))?;
    }
    writeln!(out)?;
    totals("", sums, out)?;
    match host {
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

/// An allocation on one line.
fn write_allocation(row: &Row<'_>, about: &About, out: &mut dyn Write) -> io::Result<()> {
    let allocation = row.allocation;
    let device = allocation
        .device
        .map_or("?".into(), |device| device.to_string());
    let place = if allocation.at_host {
        "host".into()
    } else {
        format!("gpu_{device}")
    };
    write!(
        out,
        "{:#x}  {}  {}  {} {place}  pid {}",
        allocation.address,
        size(allocation.bytes),
        allocation.kind,
        row.trace(),
        row.process.pid
    )?;
    if let Some(tid) = row.thread.tid {
        write!(out, ":{tid}")?;
    }
    write!(
        out,
        "  at {:.6} s",
        about.since_first(allocation) as f64 / 1e9
    )?;
    let name = allocation.name.as_deref().unwrap_or_default();
    let operation = operation(&allocation.api, allocation.kind.name());
    for word in [operation, name]
        .into_iter()
        .filter(|word| !word.is_empty())
    {
        write!(out, "  {}", printable(word))?;
    }
    writeln!(out)
}

fn write_thread(
    process: &ProcessReport,
    thread: &ThreadReport,
    about: &About,
    answer: &Answer,
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = printable(thread.comm.as_deref().unwrap_or("?"));
    let tid = thread.tid.map_or("?".into(), |tid| tid.to_string());
    writeln!(out, "pid {}  {name}:{tid}", process.pid)?;
    let listed = thread.allocations.iter();
    let listed = listed.filter(|allocation| answer.host || !allocation.at_host);
    let sites = process.sites.iter().flatten();
    let sites: HashMap<_, _> = sites.map(|site| (site.id, site)).collect();
    let rows: Vec<_> = listed
        .map(|allocation| Row {
            process,
            thread,
            allocation,
            site: allocation.site.and_then(|site| sites.get(&site).copied()),
        })
        .collect();
    for row in rows.iter().take(answer.top) {
        write!(out, "  ")?;
        write_allocation(row, about, out)?;
    }
    omitted(
        rows.iter().skip(answer.top).map(|row| row.allocation.bytes),
        out,
    )
}

fn write_site(site: &SiteReport, out: &mut dyn Write) -> io::Result<()> {
    let kinds = kinds(&site.kinds);
    let api = match operation(&site.api, &kinds) {
        "" => "?",
        api => api,
    };
    writeln!(
        out,
        "{} bytes ({}) in {} allocations  {}  {}",
        site.live.bytes(),
        size(site.live.bytes()),
        site.live.allocations(),
        kinds,
        printable(api)
    )?;
    stack(&site.stack, out)
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

fn findings(findings: Option<&Findings>, out: &mut dyn Write) -> io::Result<()> {
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

/// Kernels that ran on a GPU that was timed, or else those that were launched.
pub(super) fn kernels(report: &Report, top: usize, out: &mut dyn Write) -> io::Result<()> {
    let kernels = Kernel::all(report);
    let launches: u64 = kernels.iter().map(|kernel| kernel.launches).sum();
    let processes = report
        .activity
        .iter()
        .flat_map(|activity| &activity.processes);
    let ran: u64 = processes.map(|process| process.graphs.count).sum();
    let called = report
        .cudatrace
        .as_ref()
        .map_or(0, |trace| trace.graph_launches);
    let graphs = if ran > 0 { ran } else { called };
    writeln!(
        out,
        "kernels: {launches} launches of {} kernels, {graphs} graph launches",
        kernels.len()
    )?;
    gpus(report.about.as_ref().map_or(&[], |about| &about.gpus), out)?;
    let times = kernels.iter().filter_map(|kernel| kernel.times);
    let total: u64 = times.map(|times| times.total_ns).sum();
    for kernel in kernels.iter().take(top) {
        let name = printable(&symbols::shorten(kernel.name, NAME_WIDTH));
        write!(out, "  {:>10}  {name}", kernel.launches)?;
        if let Some(times) = kernel.times {
            let share = times.total_ns as f64 * 100.0 / total.max(1) as f64;
            let us = |ns: u64| ns as f64 / 1e3;
            write!(
                out,
                "   {:.3} ms on the GPU ({share:.1} %), mean {:.1} us ({:.1} to {:.1})",
                times.total_ns as f64 / 1e6,
                times.mean_ns / 1e3,
                us(times.min_ns),
                us(times.max_ns)
            )?;
        }
        if let Some(captured) = kernel.captured.filter(|&captured| captured > 0) {
            write!(out, "   {captured} captured")?;
        }
        writeln!(out)?;
    }
    match kernels.len().saturating_sub(top) {
        0 => Ok(()),
        rest => writeln!(out, "  ... and {rest} more"),
    }
}

fn gpus(gpus: &[Gpu], out: &mut dyn Write) -> io::Result<()> {
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

/// Copies that ran on a GPU that was timed, or else those that were called.
pub(super) fn copies(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let copies = Copies::all(report);
    writeln!(
        out,
        "copies: {}",
        copies.iter().map(|copy| copy.count).sum::<u64>()
    )?;
    for copy in &copies {
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

/// The program that wrote the file. Exports of before 2022 do not say which it was.
fn written_by(session: &Session) -> String {
    let product = session.product.as_deref().unwrap_or("Nsight Systems");
    let version = match &session.version {
        Some(version) => format!(" {version}"),
        None => " (version unknown)".to_owned(),
    };
    let tables = session.schema.as_deref();
    let tables = tables.map(|schema| format!(", tables of version {schema}"));
    printable(&[product, &version, tables.as_deref().unwrap_or_default()].concat())
}

pub(super) fn summary(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Some(about) = &report.about else {
        return Ok(());
    };
    let empty = Session::default();
    let session = about.session.as_ref().unwrap_or(&empty);
    run(session, out)?;
    memory(report, about, out)?;
    writeln!(out)?;
    kernels(report, ON_PAGE, out)?;
    writeln!(out)?;
    copies(report, out)?;
    let processes = report
        .activity
        .iter()
        .flat_map(|activity| &activity.processes);
    for process in processes {
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
    findings(about.findings.as_ref(), out)?;
    crate::text::write_lost(&report.lost, out)
}

/// Who recorded what.
fn run(session: &Session, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", written_by(session))?;
    if let Some(command) = &session.command {
        writeln!(out, "command: {}", printable(command))?;
    }
    if let Some(start) = session.wall(0) {
        writeln!(out, "began: {}", rfc3339_seconds(&start))?;
    }
    for (id, name) in &session.gpus {
        writeln!(out, "gpu_{id}: {}", printable(name))?;
    }
    writeln!(out)
}

/// The highest point, what was never freed, and from where.
fn memory(report: &Report, about: &About, out: &mut dyn Write) -> io::Result<()> {
    let (Some(memleak), Some(findings)) = (&report.memleak, &about.findings) else {
        return writeln!(out, "no memory events");
    };
    let seconds = about.last_ns.unwrap_or(0) as f64 / 1e9;
    writeln!(out, "{} memory events in {seconds:.3} s", findings.events)?;
    let totals = about.totals.unwrap_or_default();
    if let Some(peak) = &about.watermark {
        let AtPeak { time_ns, time, .. } = **peak;
        headline("watermark", time_ns, time, &peak.totals, None, out)?;
        largest(&peak.memleak, out)?;
    }
    headline("leakage", None, None, &totals, None, out)?;
    largest(memleak, out)
}

/// The call sites that hold most.
fn largest(memleak: &Memleak, out: &mut dyn Write) -> io::Result<()> {
    let sites = sites(memleak, Sort::Bytes, false);
    for (_, site) in sites.iter().take(ON_PAGE) {
        let (count, human) = (site.live.allocations(), size(site.live.bytes()));
        let is_users = |f: &&Frame| super::is_users(&f.function, &f.module, f.file.as_deref());
        let kinds = kinds(&site.kinds);
        let called = &site.api;
        let label = match site.stack.iter().find(is_users) {
            Some(frame) => format!("{called} <- {}", frame.function),
            None => called.to_string(),
        };
        writeln!(
            out,
            "    {human:>12} in {count:>6}  {kinds}  {}",
            printable(&label)
        )?;
    }
    let rest = sites
        .iter()
        .skip(ON_PAGE)
        .map(|(_, site)| site.live.bytes());
    match rest.fold(0, u64::saturating_add) {
        0 => Ok(()),
        rest => writeln!(out, "    {:>12} elsewhere", size(rest)),
    }
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
