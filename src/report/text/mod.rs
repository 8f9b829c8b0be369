//! The report for people.

mod bandwidth;
mod cudatrace;

use std::io::{self, Write};

use humansize::{BINARY, FormatSizeOptions, format_size};

use super::bandwidth::CopyReport;
use super::{Lost, Memleak, ProcessReport, Report, Writer};
use crate::clock;

pub(super) struct Text;

impl Writer for Text {
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let rule = "-".repeat(20);
        writeln!(
            out,
            "{rule} {} {rule}",
            clock::rfc3339_seconds(&report.time)
        )?;
        if let Some(memleak) = &report.memleak {
            write_memleak(memleak, out)?;
        }
        if let Some(cudatrace) = &report.cudatrace {
            separate(report.memleak.is_some(), out)?;
            cudatrace::write(cudatrace, out)?;
        }
        if let Some(bandwidth) = &report.bandwidth_util {
            separate(report.memleak.is_some() || report.cudatrace.is_some(), out)?;
            bandwidth::write(bandwidth, out)?;
        }
        write_lost(&report.lost, out)?;
        writeln!(out)
    }

    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
        bandwidth::write_copy(copy, out)
    }
}

/// A blank line between two parts.
fn separate(needed: bool, out: &mut dyn Write) -> io::Result<()> {
    if needed { writeln!(out) } else { Ok(()) }
}

fn write_memleak(memleak: &Memleak, out: &mut dyn Write) -> io::Result<()> {
    let seen = memleak.alloc_calls + memleak.free_calls + memleak.failed_calls + memleak.null_frees;
    if seen == 0 && memleak.processes.is_empty() {
        return writeln!(out, "NO EVENT.");
    }
    for process in &memleak.processes {
        // A process that ended and leaked nothing is no news.
        if !process.exited || process.live_allocations > 0 {
            write_process(process, out)?;
        }
    }
    writeln!(out)?;
    writeln!(out, "TOTAL LEAKED: {}", size(memleak.live_bytes))?;
    writeln!(out)?;
    writeln!(out, "{}", call_counts(memleak))?;
    if memleak.failed_calls > 0 {
        writeln!(out, "calls that failed: {}", memleak.failed_calls)?;
    }
    if memleak.unknown_frees > 0 {
        let unknown = memleak.unknown_frees;
        writeln!(
            out,
            "frees of memory allocated before tracing began: {unknown}"
        )?;
    }
    writeln!(
        out,
        "{} bytes leaked from {} cuda memory allocation(s)",
        memleak.live_bytes, memleak.live_allocations
    )
}

/// Names each allocating function that was called.
fn call_counts(memleak: &Memleak) -> String {
    let mut counts = memleak
        .calls
        .iter()
        .map(|(symbol, calls)| format!("`{symbol}` calls: {calls}"));
    let first = counts
        .next()
        .unwrap_or_else(|| "allocating calls: 0".into());
    counts.fold(format!("total number of {first}"), |line, next| {
        format!("{line}, {next}")
    })
}

fn write_process(process: &ProcessReport, out: &mut dyn Write) -> io::Result<()> {
    let uid = process.uid.map_or("?".into(), |uid| uid.to_string());
    let exited = if process.exited { " (exited)" } else { "" };
    writeln!(out, "PID: {} / UID: {uid}{exited}", process.pid)?;
    if process.threads.is_empty() {
        writeln!(out, "  nothing live")?;
    }
    for thread in &process.threads {
        let comm = printable(thread.comm.as_deref().unwrap_or("?"));
        writeln!(out, "  {comm}:{}", thread.tid)?;
        for allocation in &thread.allocations {
            let device = allocation.device.map_or("?".into(), |d| d.to_string());
            let size = size(allocation.bytes);
            writeln!(out, "    {:#x}:gpu_{device}: {size}", allocation.address)?;
        }
        if thread.omitted_allocations > 0 {
            let (count, size) = (thread.omitted_allocations, size(thread.omitted_bytes));
            writeln!(out, "    ... and {count} more, {size}")?;
        }
    }
    Ok(())
}

fn write_lost(lost: &Lost, out: &mut dyn Write) -> io::Result<()> {
    if !lost.any() {
        return Ok(());
    }
    writeln!(
        out,
        "LOST EVENTS, the figures above are incomplete: {}",
        describe_lost(lost)
    )
}

/// The non-zero losses, by name.
pub fn describe_lost(lost: &Lost) -> String {
    let parts = [
        (lost.memory, "memory calls"),
        (lost.tasks, "names or ends of processes and threads"),
        (lost.notices, "hints at new libraries"),
        (lost.contexts, "devices of contexts"),
        (lost.children, "children not followed"),
        (lost.launches, "launches"),
        (lost.names, "names of kernels"),
        (lost.copies, "copies"),
        (lost.undecodable, "records not understood"),
    ];
    let named = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<_> = named
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    parts.join(", ")
}

/// Bytes in binary units, with two decimals from KiB on.
pub(crate) fn size(bytes: u64) -> String {
    let decimals = if bytes < 1024 { 0 } else { 2 };
    let options = FormatSizeOptions::from(BINARY)
        .decimal_places(decimals)
        .decimal_zeroes(decimals);
    format_size(bytes, options)
}

/// A traced program chooses its names; control characters must not reach the terminal.
pub(crate) fn printable(name: &str) -> String {
    name.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1024), "1.00 KiB");
        assert_eq!(size(20 * 1024 * 1024), "20.00 MiB");
        assert_eq!(size(1_288_490_188), "1.20 GiB");
    }

    #[test]
    fn control_characters_are_shown_not_sent() {
        assert_eq!(printable("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(printable("pt_main 線"), "pt_main 線");
    }
}
