//! The summary of a file, on one page.

use std::io::{self, Write};

use super::work::{self, plural_of};
use super::{ListLength, findings, headline, note};
use crate::activity::ProcessSummary;
use crate::analysis::answer::{kinds, sites};
use crate::analysis::merged::timed_processes;
use crate::analysis::{About, AtPeak};
use crate::memleak::Memleak;
use crate::text::page::Page;
use crate::text::pytorch;
use crate::text::sites::per_cent;
use crate::text::table::{Column, ReportTable};
use crate::text::times::time;
use crate::words::plural;
use crate::{Report, SortBy, incidents};
use gpuprobe_model::clock::rfc3339_seconds;
use gpuprobe_model::text::{printable, size};
use gpuprobe_recording::Session;

/// Number of call stacks and of kernels on the page.
const ON_PAGE: usize = 5;

/// The program that wrote the file. Exports from before 2022 do not name it.
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

/// Writes the summary of a file.
pub(super) fn summary(report: &Report, lines: ListLength, out: &mut dyn Write) -> io::Result<()> {
    let lines = ListLength {
        top: lines.top.min(ON_PAGE),
        ..lines
    };
    let Some(about) = &report.about else {
        return Ok(());
    };
    let empty = Session::default();
    let session = about.session.as_ref().unwrap_or(&empty);
    run(session, about, out)?;
    memory(report, about, lines.width, out)?;
    if !report.incidents.is_empty() {
        writeln!(out)?;
        incidents::write(&report.incidents, report.refused, lines.width, out)?;
    }
    writeln!(out)?;
    let has = |list: fn(&ProcessSummary) -> bool| timed_processes(report).any(list);
    if about.processes.iter().flatten().nth(1).is_some() {
        work::processes(report, lines, out)?;
        writeln!(out)?;
    }
    let launches = report.cudatrace.as_ref();
    let launches = launches.is_some_and(|trace| trace.launches + trace.graph_launches > 0);
    if launches || has(|process| !process.kernels.is_empty()) {
        work::kernels(report, lines, out)?;
        writeln!(out)?;
    }
    let copies = report.bandwidth_util.as_ref();
    let copies = copies.is_some_and(|copies| !copies.directions.is_empty());
    if copies || has(|process| !process.copies.is_empty()) {
        work::copies(report, lines, out)?;
        writeln!(out)?;
    }
    if has(|process| !process.calls.is_empty()) {
        work::calls(report, lines, out)?;
        writeln!(out)?;
    }
    if has(|process| !process.synchronizations.is_empty()) {
        work::waits(report, lines, out)?;
        writeln!(out)?;
    }
    if has(|process| !process.ranges.is_empty()) {
        work::ranges(report, lines, out)?;
        writeln!(out)?;
    }
    work::overhead(report, out)?;
    if let Some(why) = session.notes.get("stopped") {
        let why = printable(why);
        let stopped = format!("the recording stopped before the run did: {why}");
        writeln!(out, "{}", note(&stopped))?;
    } else if !session.notes.is_empty() {
        end(session.notes.get("complete").map(String::as_str), out)?;
    }
    findings(about.findings.as_ref(), out)?;
    crate::text::write_lost(report, out)
}

/// Notes how a recording ended, unless it is complete.
fn end(complete: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
    match complete {
        Some("true") => Ok(()),
        Some(_) => {
            let said = "the recording is not complete: it did not keep up, and events were dropped";
            writeln!(out, "{}", note(said))
        }
        None => {
            let said = "the recording has no end: it was cut off, or still goes on";
            writeln!(out, "{}", note(said))
        }
    }
}

/// The recording program, the command, the start time and the GPUs.
fn run(session: &Session, about: &About, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", written_by(session))?;
    if let Some(command) = &session.command {
        writeln!(out, "command: {}", printable(command))?;
    }
    if let Some(start) = session.wall(0) {
        writeln!(out, "began: {}", rfc3339_seconds(&start))?;
    }
    if let Some(run_ns) = about.run_ns {
        let processes = about.processes.as_ref().map_or(0, Vec::len) as u64;
        let processes = plural_of(processes, "process", "processes");
        let ran = time(run_ns as f64);
        writeln!(
            out,
            "run time: {ran} from the first record to the last, {processes}"
        )?;
    }
    for (id, name) in &session.gpus {
        writeln!(out, "GPU {id}: {}", printable(name))?;
    }
    writeln!(out)
}

/// The peak, and the memory that was never freed, with the largest call sites.
fn memory(
    report: &Report,
    about: &About,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (Some(memleak), Some(findings)) = (&report.memleak, &about.findings) else {
        return writeln!(out, "no memory events");
    };
    let page = Page::of_file(width);
    let seconds = about.last_ns.unwrap_or(0) as f64 / 1e9;
    writeln!(out, "{} memory events in {seconds:.3} s", findings.events)?;
    let totals = about.totals.unwrap_or_default();
    if let Some(peak) = &about.watermark {
        let AtPeak { time_ns, time, .. } = **peak;
        headline("watermark", time_ns, time, &peak.totals, None, &page, out)?;
        largest(&peak.memleak, width, out)?;
    }
    headline("leakage", None, None, &totals, None, &page, out)?;
    largest(memleak, width, out)?;
    let processes = memleak.processes.iter();
    processes
        .filter(|process| !process.pytorch.is_empty())
        .try_for_each(|process| pytorch::write_short(process, &memleak.view, ON_PAGE, &page, out))
}

/// The largest call sites.
fn largest(memleak: &Memleak, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let sites = sites(memleak, SortBy::Bytes, false);
    let columns = [
        Column::right("HELD"),
        Column::right("%HELD"),
        Column::right("N"),
        Column::left("KIND"),
        Column::right("PID"),
        Column::right("#"),
        Column::text("WHERE"),
        Column::text("VIA").needs_width(100),
    ];
    let mut table = ReportTable::new(4, &columns);
    let is_one = memleak.processes.len() == 1;
    for (process, site) in sites.iter().take(ON_PAGE) {
        let share = site.live.live_bytes as f64 / memleak.live.live_bytes.max(1) as f64;
        table.row([
            size(site.live.bytes()),
            per_cent(share),
            site.live.allocations().to_string(),
            kinds(&site.kinds),
            if is_one {
                String::new()
            } else {
                process.pid.to_string()
            },
            site.id.to_string(),
            printable(&site.label),
            printable(&site.via),
        ]);
    }
    table.write(width, out)?;
    let rest = sites.get(ON_PAGE..).unwrap_or_default();
    let bytes = rest.iter().map(|(_, site)| site.live.bytes());
    match bytes.fold(0, u64::saturating_add) {
        0 => Ok(()),
        bytes => {
            let more = plural(rest.len() as u64, "more site");
            writeln!(out, "    ... {more}, {} (--analysis)", size(bytes))
        }
    }
}
