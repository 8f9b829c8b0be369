//! Explanations as text.

use std::io::{self, Write as _};

use gpuprobe_model::text::printable;
use gpuprobe_os::color::Tone;
use gpuprobe_os::terminal::Layout;

use super::memory::write_owners;
use super::page::Page;
use gpuprobe_report::explain::{Explain, VerdictReport};
use gpuprobe_report::verdict::{self, Severity, Verdict};
use gpuprobe_report::words::plural;

/// Call sites that are as they should be, and are named.
const FINE: usize = 5;

/// The explanation in words, in lines of so many columns, with the colours of [`gpuprobe_os::color`].
pub fn to_text(explain: &Explain, columns: usize) -> String {
    let layout = Layout {
        columns: Some(columns),
        colored: true,
        full_names: false,
    };
    let mut text = Vec::new();
    // A vector takes all.
    let _ = write(explain, &mut Page::new(layout, None, &mut text));
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes the verdicts on each process.
pub(crate) fn write(explain: &Explain, page: &mut Page<'_>) -> io::Result<()> {
    if explain.processes.is_empty() {
        return writeln!(page, "no process holds GPU memory");
    }
    for (index, (pid, title)) in explain.processes.iter().enumerate() {
        if index > 0 {
            writeln!(page)?;
        }
        // The process id is a heading.
        let after_pid = title.match_indices(' ').nth(1).map_or(0, |(at, _)| at + 1);
        let (process, rest) = title.split_at(after_pid);
        page.hanging(&Tone::Heading.paint(process), rest)?;
        let all: Vec<_> = explain.of_process(*pid).collect();
        let is_fine = |one: &VerdictReport| one.grade == Severity::Fine && one.site.is_some();
        let fine = all.iter().filter(|one| is_fine(one));
        let others = all.iter().filter(|one| !is_fine(one));
        let first = others.clone().filter(|one| one.grade < Severity::Fine);
        for one in first.chain(fine.clone().take(FINE)) {
            write_one(one, page)?;
        }
        if let Some(more) = fine.count().checked_sub(FINE).filter(|more| *more > 0) {
            let more = format!("{}, as they should be", plural(more as u64, "more site"));
            page.hanging(&grade(Severity::Fine), &more)?;
        }
        for one in others.filter(|one| one.grade >= Severity::Fine) {
            write_one(one, page)?;
        }
    }
    writeln!(page)?;
    write_owners(&explain.owners, page)
}

/// `LEAK  train.py:58 training_step: growing 12.4 MiB/s for 58s, ...`, and what led to that.
fn write_one(one: &VerdictReport, page: &mut Page<'_>) -> io::Result<()> {
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
    page.hanging(&grade(one.grade), &format!("{place}{first}{unsure}"))?;
    for part in one.evidence.iter().skip(1) {
        page.hanging("      ", part)?;
    }
    if one.grade < Severity::Fine && !one.advice.is_empty() {
        page.hanging("      -> ", one.advice)?;
    }
    Ok(())
}

/// The word in front of a verdict, in six columns.
fn grade(grade: Severity) -> String {
    verdict::tone(grade).paint(&format!("{:6}", grade.word()))
}
