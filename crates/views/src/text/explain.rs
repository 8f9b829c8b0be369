//! Explanations as text.

use gpuprobe_model::text::printable;
use gpuprobe_os::color::Tone;

use super::memory::write_owners;
use super::page::Page;
use super::stacks::{LISTING, lines};
use gpuprobe_os::terminal::Layout;
use gpuprobe_report::View;
use gpuprobe_report::explain::{Explain, VerdictReport};
use gpuprobe_report::memleak::SiteReport;
use gpuprobe_report::verdict::{self, Severity};
use gpuprobe_report::words::plural;

/// Columns that a call stack is to the right of those in tables.
const INDENT: usize = 4;
/// Call sites of a severity that need no attention, and are named.
const FINE: usize = 5;

/// The explanation in words, in lines of so many columns, with the colours of [`gpuprobe_os::color`].
pub fn to_text(explain: &Explain, columns: usize) -> String {
    let mut page = Page::painted(columns);
    write(explain, &mut page);
    page.text
}

/// Writes the verdicts on each process.
pub(crate) fn write(explain: &Explain, page: &mut Page) {
    if explain.processes.is_empty() {
        page.line("no process holds GPU memory");
        return write_watched(explain, page);
    }
    for (pid, title) in &explain.processes {
        page.part();
        // The process id is a heading.
        let after_pid = title.match_indices(' ').nth(1).map_or(0, |(at, _)| at + 1);
        let (process, rest) = title.split_at(after_pid);
        page.hanging(&Tone::Heading.paint(process), rest);
        let all: Vec<_> = explain.of_process(*pid).collect();
        for of_grade in all.chunk_by(|a, b| a.grade == b.grade) {
            write_grade(of_grade, page);
        }
    }
    if page.layout.verbose || explain.owners.len() > 1 {
        page.part();
        write_owners(&explain.owners, page);
    }
    write_watched(explain, page);
}

fn write_watched(explain: &Explain, page: &mut Page) {
    if let Some(watched) = explain.watched_seconds {
        page.line(format!("watched for {watched:.0}s"));
    }
}

/// Writes the verdicts of a severity; of call sites that need no attention, some.
fn write_grade(all: &[&VerdictReport], page: &mut Page) {
    let severity = all[0].grade;
    let mut sites = 0;
    for one in all {
        sites += usize::from(severity > Severity::Warning && one.site.is_some());
        if sites <= FINE || one.site.is_none() {
            write_one(one, page);
        }
    }
    if sites > FINE {
        let more = plural((sites - FINE) as u64, "more site");
        page.hanging(&grade(severity), &more);
    }
}

/// `LEAK  train.py:58 training_step: growing 12.4 MiB/s for 58s, ...`, and what led to that.
fn write_one(one: &VerdictReport, page: &mut Page) {
    let first = one.evidence.first().map_or("", String::as_str);
    let place = match (&one.label, one.site) {
        (Some(label), Some(site)) => {
            let prefix = one.tensors_of_device.map_or("", |_| "T");
            format!("{} [{prefix}{site}]: ", printable(label))
        }
        _ => String::new(),
    };
    page.hanging(&grade(one.grade), &format!("{place}{first}"));
    for part in one.evidence.iter().skip(1) {
        page.hanging("          ", part);
    }
    if let Some(site) = &one.leak {
        page.lines(&below(site, page.layout));
    }
    if one.grade < Severity::Fine && !one.advice.is_empty() {
        page.hanging("          -> ", one.advice);
    }
}

/// The stack of a site, below its verdict.
fn below(site: &SiteReport, layout: Layout) -> Vec<String> {
    let columns = layout.columns.map(|columns| columns.saturating_sub(INDENT));
    let layout = Layout { columns, ..layout };
    let lines = lines(site, &View::default(), layout, LISTING).into_iter();
    lines.map(|line| format!("{:INDENT$}{line}", "")).collect()
}

/// The word in front of a verdict, in ten columns.
fn grade(grade: Severity) -> String {
    verdict::tone(grade).paint(&format!("{:10}", grade.word()))
}
