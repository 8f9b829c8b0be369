//! Live memory by allocation, by thread or by call site.

use std::io::{self, Write};

use super::{findings, headline};
use crate::analysis::About;
use crate::analysis::answer::{Answer, Row, kinds, operation};
use crate::memleak::{ProcessReport, SiteReport, ThreadReport};
use crate::{Group, Report};
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};

/// The highest point, or the memory that was never freed.
pub(in crate::analysis) fn listing(
    answer: &Answer,
    report: &Report,
    out: &mut dyn Write,
) -> io::Result<()> {
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
                for (thread, rows) in answer.rows_by_thread(process) {
                    write_thread(process, thread, &rows, about, top, out)?;
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
    rows: &[Row<'_>],
    about: &About,
    top: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = printable(thread.comm.as_deref().unwrap_or("?"));
    let tid = thread.tid.map_or("?".into(), |tid| tid.to_string());
    writeln!(out, "pid {}  {name}:{tid}", process.pid)?;
    for row in rows.iter().take(top) {
        write!(out, "  ")?;
        write_allocation(row, about, out)?;
    }
    omitted(rows.iter().skip(top).map(|row| row.allocation.bytes), out)
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
