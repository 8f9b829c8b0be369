//! The report for people.

mod activity;
mod bandwidth;
mod cudatrace;
mod memleak;
mod sites;
#[allow(dead_code, reason = "the tables come one by one")]
pub(crate) mod table;

use gpuprobe_model::Lost;
use gpuprobe_model::text::printable;
use std::io::{self, Write};

pub(crate) use activity::write_calls_and_waits;
pub(crate) use sites::write_filtered;

use super::activity::lines::Line;
use super::bandwidth::CopyReport;
use super::{Report, Writer};
use gpuprobe_model::clock;

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
            report
                .time
                .as_ref()
                .map(clock::rfc3339_seconds)
                .unwrap_or_default()
        )?;
        if let Some(memleak) = &report.memleak {
            memleak::write(memleak, out)?;
        }
        if let Some(cudatrace) = &report.cudatrace {
            separate(report.memleak.is_some(), out)?;
            cudatrace::write(cudatrace, None, out)?;
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

pub(crate) fn write_lost(lost: &Lost, out: &mut dyn Write) -> io::Result<()> {
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
        (lost.recording, "records of the recording"),
        (lost.undecodable, "records not understood"),
    ];
    let named = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<_> = named
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    parts.join(", ")
}
