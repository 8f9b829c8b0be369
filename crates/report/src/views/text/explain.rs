//! Explanations as text.

use std::io::{self, Write as _};

use gpuprobe_engine::verdict::{Severity, Verdict};
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::color::Tone;
use gpuprobe_os::terminal::Layout;

use super::page::Page;
use super::process::write_owners;
use crate::explain::{Explain, VerdictReport};
use crate::verdict;
use crate::words::plural;

/// Call sites that are as they should be, and are named.
const FINE: usize = 5;

impl Explain {
    /// The explanation in words, in lines of so many columns, with the colours of [`gpuprobe_os::color`].
    pub fn to_text(&self, columns: usize) -> String {
        let layout = Layout {
            columns: Some(columns),
            colored: true,
            full_names: false,
        };
        let mut text = Vec::new();
        // A vector takes all.
        let _ = write(self, &mut Page::new(layout, None, &mut text));
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Writes the verdicts on each process.
pub(crate) fn write(explain: &Explain, page: &mut Page<'_>) -> io::Result<()> {
    if explain.processes.is_empty() {
        return writeln!(page, "no process holds GPU memory");
    }
    for (index, process) in explain.processes.iter().enumerate() {
        if index > 0 {
            writeln!(page)?;
        }
        write_title(&process.title, page)?;
        let fine = |one: &&VerdictReport| one.grade == Severity::Fine && one.site.is_some();
        let (fine, others): (Vec<_>, Vec<_>) = explain.of_process(process.pid).partition(fine);
        let (shown, rest) = fine.split_at(fine.len().min(FINE));
        let first = others.iter().filter(|one| one.grade < Severity::Fine);
        for one in first.chain(shown) {
            write_one(one, page)?;
        }
        if !rest.is_empty() {
            let bytes = rest.iter().map(|one| one.bytes);
            let bytes = size(bytes.fold(0, u64::saturating_add));
            let more = plural(rest.len() as u64, "more site");
            let more = format!("{more}, {bytes}, as they should be");
            page.hanging(&grade(Severity::Fine), &more)?;
        }
        for one in others.iter().filter(|one| one.grade >= Severity::Fine) {
            write_one(one, page)?;
        }
    }
    writeln!(page)?;
    write_owners(&explain.owners, page)
}

/// `PID 683 python3 train.py on GPU 0 ...`, the process id as a heading.
fn write_title(title: &str, page: &mut Page<'_>) -> io::Result<()> {
    let after_pid = title.match_indices(' ').nth(1).map_or(0, |(at, _)| at + 1);
    let (pid, rest) = title.split_at(after_pid);
    page.hanging(&Tone::Heading.paint(pid), rest)
}

/// `LEAK  train.py:58 training_step: growing 12.4 MiB/s for 58s, ...`, and what led to that.
fn write_one(one: &VerdictReport, page: &mut Page<'_>) -> io::Result<()> {
    let mut parts = one.evidence.iter();
    let first = parts.next().map_or("", String::as_str);
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
    for part in parts {
        page.hanging("      ", part)?;
    }
    if one.grade < Severity::Fine && !one.advice.is_empty() {
        page.hanging("      -> ", one.advice)?;
    }
    Ok(())
}

/// The word in front of a verdict, in six columns.
fn grade(grade: Severity) -> String {
    let word = grade.word();
    let padding = " ".repeat(6_usize.saturating_sub(word.len()));
    verdict::tone(grade).paint(word) + &padding
}
