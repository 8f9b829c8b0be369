//! The report for people.

pub mod explain;
pub(crate) mod file;
pub mod incidents;
mod memory;
pub(crate) use memory::gpu_line;
pub(crate) mod page;
pub mod sites;
mod stacks;
mod table;
mod work;

use std::io::{self, Write};

use gpuprobe_model::clock;
use gpuprobe_model::text::printable;
use gpuprobe_model::{TracingCost, UserLoss};
use gpuprobe_os::terminal::Layout;

use super::tables::records::record;
use gpuprobe_report::bandwidth::CopyReport;
use gpuprobe_report::cudatrace::Cudatrace;
use gpuprobe_report::memleak::Memleak;
use gpuprobe_report::records::PerRecordLine;
use gpuprobe_report::words::{describe_lost, short_model};
use gpuprobe_report::{Report, ReportWriter};
use page::Page;

#[derive(Default)]
pub(crate) struct TextWriter {
    layout: Layout,
}

impl TextWriter {
    fn page(&self) -> Page {
        Page {
            layout: self.layout,
            ..Page::default()
        }
    }
}

impl ReportWriter for TextWriter {
    fn write(&mut self, report: &Report, out: &mut dyn Write) -> io::Result<()> {
        let time = report.time.as_ref();
        let time = match self.layout.columns {
            Some(_) => time.map(|time| time.format("%H:%M:%S").to_string()),
            _ => time.map(clock::rfc3339_seconds),
        };
        let page = Page {
            time,
            ..self.page()
        };
        page.print(out, |page| write(report, page))
    }

    fn lay_out(&mut self, layout: Layout) {
        self.layout = layout;
    }

    fn write_copy(&mut self, copy: &CopyReport, out: &mut dyn Write) -> io::Result<()> {
        self.page().print(out, |page| work::write_copy(copy, page))
    }

    fn write_activity(&mut self, line: &PerRecordLine<'_>, out: &mut dyn Write) -> io::Result<()> {
        self.page()
            .print(out, |page| page.line(record(line).line()))
    }
}

/// Whether nothing was traced so far.
pub fn is_empty(report: &Report) -> bool {
    let memleak = report.memleak.as_ref();
    let launches = report.cudatrace.as_ref();
    let copies = report.bandwidth_util.as_ref();
    memleak.is_none_or(Memleak::is_empty)
        && launches.is_none_or(Cudatrace::is_empty)
        && copies.is_none_or(|one| one.directions.is_empty())
        && report.activity.is_none()
        && report.explain.is_none()
        && report.incidents.is_empty()
        && !report.lost.any()
}

/// Writes a report.
fn write(report: &Report, page: &mut Page) {
    if let Some(explain) = &report.explain {
        explain::write(explain, page);
        incidents::write(report, page);
        return write_lost(report, page);
    }
    if let Some(memleak) = &report.memleak {
        memory::write(memleak, report.is_final, page);
    }
    if !report.incidents.is_empty() {
        page.part();
        incidents::write(report, page);
    }
    if let Some(cudatrace) = &report.cudatrace {
        page.part();
        work::write_launches(cudatrace, page);
    }
    if let Some(bandwidth) = &report.bandwidth_util {
        page.part();
        work::write_copies(bandwidth, page);
    }
    if let Some(activity) = &report.activity {
        page.part();
        work::write_activity(activity, page);
    }
    let costs = report.tracing_costs.iter();
    for line in costs.filter_map(TracingCost::line_with_pid) {
        page.line(line);
    }
    if page.layout.verbose && !report.lost.any() {
        page.note("lost: nothing");
    }
    write_lost(report, page);
    page.line("");
}

pub(crate) fn write_lost(report: &Report, page: &mut Page) {
    if let Some(why) = &report.recording_stopped {
        page.warn(format!("recording has stopped: {}", printable(why)));
    }
    if report.lost.any() {
        let lost = describe_lost(&report.lost);
        let said = format!("LOST EVENTS, the figures above are incomplete: {lost}");
        page.warn(said);
    }
    for line in describe_losers(&report.lost_by_user) {
        page.line(format!("    {line}"));
    }
}

/// `GPU 0 H200`.
fn gpu(index: Option<u32>, name: Option<&str>) -> String {
    let index = index.map_or("unknown".into(), |index| index.to_string());
    let name = name.map_or(String::new(), |name| format!(" {}", short_model(name)));
    format!("GPU {index}{name}")
}

/// Whose the losses are: a line for each.
pub fn describe_losers(losses: &[UserLoss]) -> Vec<String> {
    let line = |loss: &UserLoss| {
        let (what, uid) = (describe_lost(&loss.to_lost()), loss.uid);
        match (loss.pid, &loss.comm) {
            (Some(pid), Some(comm)) => {
                format!("{what} of user {uid} (PID {pid} {})", printable(comm))
            }
            _ => format!("{what} of user {uid} (other processes)"),
        }
    };
    losses.iter().map(line).collect()
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
