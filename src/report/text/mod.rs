//! The report for people.

mod activity;
mod bandwidth;
mod cudatrace;
mod memleak;
mod sites;

use std::io::{self, Write};

use humansize::{BINARY, FormatSizeOptions, format_size};

use super::activity::lines::Line;
use super::bandwidth::CopyReport;
use super::{Lost, Report, Writer};
use crate::clock;

#[derive(Default)]
pub(super) struct Text {
    /// Whose records were written last.
    pid: Option<u32>,
}

impl Writer for Text {
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let rule = "-".repeat(20);
        writeln!(
            out,
            "{rule} {} {rule}",
            clock::rfc3339_seconds(&report.time)
        )?;
        if let Some(memleak) = &report.memleak {
            memleak::write(memleak, out)?;
        }
        if let Some(cudatrace) = &report.cudatrace {
            separate(report.memleak.is_some(), out)?;
            cudatrace::write(cudatrace, out)?;
        }
        if let Some(bandwidth) = &report.bandwidth_util {
            separate(report.memleak.is_some() || report.cudatrace.is_some(), out)?;
            bandwidth::write(bandwidth, out)?;
        }
        if let Some(activity) = &report.activity {
            let before = [
                report.memleak.is_some(),
                report.cudatrace.is_some(),
                report.bandwidth_util.is_some(),
            ];
            separate(before.contains(&true), out)?;
            activity::write(activity, out)?;
        }
        write_lost(&report.lost, out)?;
        writeln!(out)
    }

    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
        bandwidth::write_copy(copy, out)
    }

    fn write_activity(&mut self, line: &Line<'_>, out: &mut dyn Write) -> io::Result<()> {
        let pid = line.activity.pid;
        if self.pid != Some(pid) {
            self.pid = Some(pid);
            writeln!(out, "PROCESS {pid} {}", printable(line.comm.unwrap_or("?")))?;
        }
        line.write_text(out)
    }
}

/// A blank line between two parts.
fn separate(needed: bool, out: &mut dyn Write) -> io::Result<()> {
    if needed { writeln!(out) } else { Ok(()) }
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
        (lost.single_launches, "single launches of a recording"),
        (lost.stacks, "call stacks"),
        (lost.partial_stacks, "call stacks beyond their first part"),
        (lost.activity, "records of what the GPU did"),
        (lost.cupti_dropped, "records that CUPTI dropped"),
        (lost.cupti_unknown, "records of CUPTI of no known kind"),
        (lost.cupti_malformed, "records of CUPTI that make no sense"),
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

/// A traced program chooses its names; what controls a terminal must not reach it, nor what ends a
/// line or turns its direction.
pub(crate) fn printable(name: &str) -> String {
    let obeyed = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}')
    };
    name.chars()
        .flat_map(|c| {
            let escaped = obeyed(c).then(|| c.escape_default());
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
        assert_eq!(printable("a\u{202e}\u{2028}b"), "a\\u{202e}\\u{2028}b");
    }
}
