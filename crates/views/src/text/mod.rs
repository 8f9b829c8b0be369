//! The report for people.

pub mod explain;
pub(crate) mod file;
pub mod incidents;
mod memory;
pub(crate) mod page;
mod sites;
mod stacks;
mod table;
mod work;

use std::io::{self, Write};

use gpuprobe_model::UserLoss;
use gpuprobe_model::clock;
use gpuprobe_model::text::printable;
use gpuprobe_os::color::Tone;
use gpuprobe_os::terminal::Layout;

use super::tables::records::record;
use gpuprobe_report::bandwidth::CopyReport;
use gpuprobe_report::records::PerRecordLine;
use gpuprobe_report::words::{Who, describe_lost};
use gpuprobe_report::{Report, ReportWriter};
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
                comm: line.comm.map(str::to_owned),
                ..Who::default()
            };
            page.head(&who.title(false))?;
        }
        writeln!(page, "{}", record(line).line())
    }
}

/// Writes a report.
fn write(report: &Report, page: &mut Page<'_>) -> io::Result<()> {
    if let Some(explain) = &report.explain {
        explain::write(explain, page)?;
        incidents::write(report, page)?;
        return write_lost(report, page);
    }
    if let Some(memleak) = &report.memleak {
        memory::write(memleak, report.is_final, page)?;
    }
    if !report.incidents.is_empty() {
        page.part()?;
        incidents::write(report, page)?;
    }
    if let Some(cudatrace) = &report.cudatrace {
        page.part()?;
        work::write_launches(cudatrace, page)?;
    }
    if let Some(bandwidth) = &report.bandwidth_util {
        page.part()?;
        work::write_copies(bandwidth, page)?;
    }
    if let Some(activity) = &report.activity {
        page.part()?;
        work::write_activity(activity, page)?;
    }
    if !report.lost.any() {
        page.note("lost: nothing")?;
    }
    write_lost(report, page)?;
    writeln!(page)
}

pub(crate) fn write_lost(report: &Report, page: &mut Page<'_>) -> io::Result<()> {
    let mut warn = |said: String| writeln!(page, "{}", Tone::Warning.paint(&said));
    if let Some(why) = &report.recording_stopped {
        warn(format!("recording has stopped: {}", printable(why)))?;
    }
    if report.lost.any() {
        let lost = describe_lost(&report.lost);
        warn(format!(
            "LOST EVENTS, the figures above are incomplete: {lost}"
        ))?;
    }
    let mut losers = describe_losers(&report.lost_by_user).into_iter();
    losers.try_for_each(|line| writeln!(page, "    {line}"))
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
    if losses.len() > MAX_LOSERS {
        let more = losses.len() - MAX_LOSERS;
        lines.push(format!("and {more} more (--format json has them)"));
    }
    lines
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use gpuprobe_model::Lost;

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
