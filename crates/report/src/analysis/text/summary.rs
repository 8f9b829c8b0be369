//! Everything on one page.

use std::io::{self, Write};

use super::work::{copies, kernels};
use super::{findings, headline};
use crate::analysis::answer::{kinds, sites};
use crate::analysis::merged::timed_processes;
use crate::analysis::{self, About, AtPeak};
use crate::memleak::Memleak;
use crate::{Report, Sort};
use gpuprobe_model::clock::rfc3339_seconds;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};
use gpuprobe_recording::Session;

/// Call stacks and kernels on the page.
const ON_PAGE: usize = 5;

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

/// Writes the page.
pub(in crate::analysis) fn summary(report: &Report, out: &mut dyn Write) -> io::Result<()> {
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
    for process in timed_processes(report) {
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

/// The program that recorded, the command, when it began and the GPUs.
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

/// The highest point and the memory that was never freed, with the largest call sites.
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
        let is_users = |f: &&Frame| analysis::is_users(&f.function, &f.module, f.file.as_deref());
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
