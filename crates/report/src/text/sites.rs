//! Call sites and their stacks, for people.

use gpuprobe_model::text::printable;
use gpuprobe_model::text::size;
use std::io::{self, Write};

use crate::memleak::{LeftOut, Live, ProcessReport, SiteReport};
use gpuprobe_model::stack::Frame;
use gpuprobe_stacks::cuda;
use gpuprobe_stacks::symbols::shorten;

pub(super) fn write_sites(
    process: &ProcessReport,
    sites: &[SiteReport],
    out: &mut dyn Write,
) -> io::Result<()> {
    let comm = printable(process.comm.as_deref().unwrap_or("?"));
    let all = sites.len() as u64 + process.omitted.map_or(0, |left| left.sites);
    let sites_count = count(all, "call site");
    writeln!(out, "  {comm}: {} at {sites_count}", amounts(&process.live))?;
    for site in sites {
        write_site(site, out)?;
    }
    if let Some(LeftOut {
        sites,
        allocations,
        bytes,
    }) = process.omitted
    {
        let (bytes, allocations) = (size(bytes), count(allocations, "allocation"));
        let sites = count(sites, "more call site");
        writeln!(out, "  ... and {sites}, {bytes} in {allocations}")?;
    }
    process
        .filtered
        .map_or(Ok(()), |left| write_filtered("  ", &left, out))
}

/// What is live but not listed, because other allocations were asked for.
pub(crate) fn write_filtered(
    indent: &str,
    filtered: &LeftOut,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (bytes, allocations) = (
        size(filtered.bytes),
        count(filtered.allocations, "allocation"),
    );
    writeln!(
        out,
        "{indent}not listed for age or size: {bytes} in {allocations}"
    )
}

fn write_site(site: &SiteReport, out: &mut dyn Write) -> io::Result<()> {
    let kinds: Vec<_> = site.kinds.iter().map(ToString::to_string).collect();
    let (live, api, kinds) = (amounts(&site.live), &site.api, kinds.join(" and "));
    writeln!(out, "  {live}  {api} ({kinds})")?;
    let (oldest, newest) = (age(site.ages_ns.0), age(site.ages_ns.1));
    let ages = if oldest == newest {
        format!("{oldest} old")
    } else {
        format!("{oldest} to {newest} old")
    };
    let SiteReport {
        alloc_bytes,
        alloc_calls,
        freed_bytes,
        free_calls,
        ..
    } = *site;
    let (allocated, freed) = (size(alloc_bytes), size(freed_bytes));
    writeln!(
        out,
        "    {ages}; allocated here {allocated} in {alloc_calls}, freed {freed} in {free_calls}"
    )?;
    write_stack(site, out)
}

fn write_stack(site: &SiteReport, out: &mut dyn Write) -> io::Result<()> {
    if site.stack.is_empty() && site.omitted_frames == 0 {
        return writeln!(out, "      (no call stack)");
    }
    for frame in &site.stack {
        writeln!(out, "      {}", frame_line(frame))?;
    }
    if site.omitted_frames > 0 {
        let more = count(site.omitted_frames, "more frame");
        writeln!(out, "      ... {more}")?;
    } else if !site.complete {
        writeln!(out, "      ... what called this is not known")?;
    }
    Ok(())
}

/// Characters of a function's name: the templates of C++ frameworks fill many lines.
const MAX_NAME: usize = 110;

/// `function  file:line  (module) [inlined]`
fn frame_line(frame: &Frame) -> String {
    let mut line = shorten(&printable(&frame.function), MAX_NAME);
    if let Some(file) = &frame.file {
        line += &format!("  {}", printable(file));
        if let Some(number) = frame.line {
            line += &format!(":{number}");
        }
    }
    line += &format!("  ({})", printable(cuda::file_name(&frame.module)));
    if frame.inlined {
        line += " [inlined]";
    }
    line
}

/// `20.00 MiB in 5 allocations`; memory of others and of the host is never mixed in.
fn amounts(live: &Live) -> String {
    let Live {
        live_bytes,
        live_allocations,
        host_bytes,
        host_allocations,
        imported_bytes,
        imported_allocations,
    } = *live;
    let parts = [
        (live_bytes, live_allocations, ""),
        (host_bytes, host_allocations, " of host memory"),
        (imported_bytes, imported_allocations, " of others' memory"),
    ];
    let parts = parts.iter().filter(|(_, allocations, _)| *allocations > 0);
    let parts: Vec<_> = parts
        .map(|(bytes, allocations, whose)| {
            let allocations = count(*allocations, "allocation");
            format!("{}{whose} in {allocations}", size(*bytes))
        })
        .collect();
    parts.join(" and ")
}

/// `1 call site`, `2 call sites`.
fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// A time as people say it, in its two largest units.
fn age(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 => format!("{}ms", ns / 1_000_000),
        1..10 => format!("{seconds}.{}s", ns / 100_000_000 % 10),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let of = |ms: u64| age(ms * 1_000_000);
        assert_eq!(of(0), "0ms");
        assert_eq!(of(999), "999ms");
        assert_eq!(of(4_260), "4.2s");
        assert_eq!(of(59_999), "59s");
        assert_eq!(of(125_000), "2m 5s");
        assert_eq!(of(3_720_000), "1h 2m");
        assert_eq!(of(180_000_000), "2d 2h");
        assert_eq!(age(u64::MAX), "213503d 23h");
    }
}
