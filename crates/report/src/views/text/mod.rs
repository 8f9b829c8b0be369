//! The report for people.

pub(crate) mod explain;
pub(crate) mod file;
mod host;
mod memleak;
mod nvidia_smi;
pub(crate) mod page;
pub(crate) mod process;
mod pytorch;
mod sites;
mod stacks;
mod table;
mod work;

use gpuprobe_model::{Lost, UserLoss};
use std::io::{self, Write};

use crate::bandwidth::CopyReport;
use crate::views::tables::records::PerRecordLine;
use crate::words::Who;
use crate::{Report, ReportWriter, incidents};
use gpuprobe_model::clock;
use gpuprobe_model::text::printable;
use gpuprobe_os::color::Tone;
use gpuprobe_os::terminal::Layout;
use page::Page;

#[derive(Default)]
pub(crate) struct TextWriter {
    /// Whose records were written last.
    pid: Option<u32>,
    layout: Layout,
}

impl ReportWriter for TextWriter {
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let time = report.time.as_ref();
        let time = match self.layout.columns {
            Some(_) => time.map(|time| time.format("%H:%M:%S").to_string()),
            _ => time.map(clock::rfc3339_seconds),
        };
        write(report, &mut Page::new(self.layout, time, out))
    }

    fn lay_out(&mut self, layout: Layout) {
        self.layout = layout;
    }

    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
        work::write_copy(copy, &mut Page::new(self.layout, None, out))
    }

    fn write_activity(&mut self, line: &PerRecordLine<'_>, out: &mut dyn Write) -> io::Result<()> {
        let mut page = Page::new(self.layout, None, out);
        let pid = line.activity.pid;
        if self.pid.replace(pid) != Some(pid) {
            let who = Who {
                pid,
                comm: line.comm,
                ..Who::default()
            };
            page.head(&who.title())?;
        }
        writeln!(page, "{}", line.fields().line())
    }
}

/// Writes a report.
fn write(report: &Report, page: &mut Page<'_>) -> io::Result<()> {
    if let Some(explain) = &report.explain {
        explain::write(explain, page)?;
        incidents::write(&report.incidents, report.refused, page)?;
        return write_lost(report, page);
    }
    let mut is_first = true;
    let mut separate = |page: &mut Page<'_>| match std::mem::take(&mut is_first) {
        true => Ok(()),
        false => writeln!(page),
    };
    if let Some(memleak) = &report.memleak {
        separate(page)?;
        memleak::write(memleak, report.is_final, page)?;
    }
    if !report.incidents.is_empty() {
        separate(page)?;
        incidents::write(&report.incidents, report.refused, page)?;
    }
    if let Some(cudatrace) = &report.cudatrace {
        separate(page)?;
        work::write_launches(cudatrace, page)?;
    }
    if let Some(bandwidth) = &report.bandwidth_util {
        separate(page)?;
        work::write_copies(bandwidth, page)?;
    }
    if let Some(activity) = &report.activity {
        separate(page)?;
        work::write_activity(activity, page)?;
    }
    if !report.lost.any() {
        page.note("lost: nothing")?;
    }
    write_lost(report, page)?;
    writeln!(page)
}

pub(crate) fn write_lost(report: &Report, page: &mut Page<'_>) -> io::Result<()> {
    if let Some(why) = &report.recording_stopped {
        let stopped = format!("recording has stopped: {}", printable(why));
        writeln!(page, "{}", Tone::Warning.paint(&stopped))?;
    }
    if !report.lost.any() {
        return Ok(());
    }
    let lost = describe_lost(&report.lost);
    let lost = format!("LOST EVENTS, the figures above are incomplete: {lost}");
    writeln!(page, "{}", Tone::Warning.paint(&lost))?;
    for line in describe_losers(&report.lost_by_user) {
        writeln!(page, "    {line}")?;
    }
    Ok(())
}

/// Losses by user and process that are said one by one.
const MAX_LOSERS: usize = 8;

/// Whose the losses are: a line for each, and one for the rest if there are too many.
pub fn describe_losers(losses: &[UserLoss]) -> Vec<String> {
    let line = |loss: &UserLoss| {
        let what = describe_lost(&loss.to_lost());
        match (loss.pid, &loss.comm) {
            (Some(pid), Some(comm)) => {
                let comm = printable(comm);
                format!("{what} of user {} (PID {pid} {comm})", loss.uid)
            }
            _ => format!("{what} of user {} (other processes)", loss.uid),
        }
    };
    let mut lines: Vec<_> = losses.iter().take(MAX_LOSERS).map(line).collect();
    if let Some(more) = losses
        .len()
        .checked_sub(MAX_LOSERS)
        .filter(|more| *more > 0)
    {
        lines.push(format!("and {more} more (--format json has them)"));
    }
    lines
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
        (lost.python, "call stacks without their Python frames"),
        (
            lost.python_cut,
            "call stacks with more Python frames than are kept",
        ),
        (
            lost.python_unreadable,
            "Python frames that could not be read",
        ),
        (lost.tensors, "tensors"),
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn whose_the_losses_are_is_said() {
        let loss = |pid: Option<u32>| UserLoss {
            uid: 1001,
            pid,
            comm: pid.map(|_| "e\u{1b}vil".to_owned()),
            what: "memory".to_owned(),
            count: 7,
        };
        assert_eq!(
            describe_losers(&[loss(Some(4242)), loss(None)]),
            [
                "7 memory calls of user 1001 (PID 4242 e\\u{1b}vil)",
                "7 memory calls of user 1001 (other processes)"
            ]
        );
        let many = describe_losers(&vec![loss(Some(1)); 10]);
        assert_eq!(many.len(), MAX_LOSERS + 1);
        assert!(many[MAX_LOSERS].starts_with("and 2 more"));
    }

    #[test]
    fn every_loss_is_said() {
        let names = Lost::default().by_name().into_keys();
        for name in names {
            let lost = Lost::from_names(&[(name.clone(), 3)].into());
            let said = describe_lost(&lost);
            assert!(said.starts_with("3 "), "{name}: '{said}'");
        }
    }
}
