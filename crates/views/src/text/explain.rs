//! Explanations as text.

use gpuprobe_model::text::printable;
use gpuprobe_os::color::Tone;

use super::memory::write_owners;
use super::page::Page;
use gpuprobe_report::explain::{Explain, VerdictReport};
use gpuprobe_report::verdict::{self, Severity, Verdict};
use gpuprobe_report::words::plural;

/// Call sites that are as they should be, and are named.
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
        return page.line("no process holds GPU memory");
    }
    for (pid, title) in &explain.processes {
        page.part();
        // The process id is a heading.
        let after_pid = title.match_indices(' ').nth(1).map_or(0, |(at, _)| at + 1);
        let (process, rest) = title.split_at(after_pid);
        page.hanging(&Tone::Heading.paint(process), rest);
        let mut fine = 0;
        for one in explain.of_process(*pid) {
            let is_fine = one.grade == Severity::Fine && one.site.is_some();
            fine += usize::from(is_fine);
            if !is_fine || fine <= FINE {
                write_one(one, page);
            }
        }
        if fine > FINE {
            let more = plural((fine - FINE) as u64, "more site");
            page.hanging(
                &grade(Severity::Fine),
                &format!("{more}, as they should be"),
            );
        }
    }
    page.line("");
    write_owners(&explain.owners, page);
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
    let unsure = match one.confidence {
        sure if sure.is_enough() => String::new(),
        // There will be no more of a process that has ended.
        _ if one.verdict == Verdict::NeverFreed => " (not enough data to tell more)".to_owned(),
        unsure => format!(" ({unsure})"),
    };
    page.hanging(&grade(one.grade), &format!("{place}{first}{unsure}"));
    for part in one.evidence.iter().skip(1) {
        page.hanging("      ", part);
    }
    if one.grade < Severity::Fine && !one.advice.is_empty() {
        page.hanging("      -> ", one.advice);
    }
}

/// The word in front of a verdict, in six columns.
fn grade(grade: Severity) -> String {
    verdict::tone(grade).paint(&format!("{:6}", grade.word()))
}
