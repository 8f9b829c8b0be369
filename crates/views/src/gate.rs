//! The result of `--fail-on`: a few lines for people, and `JUnit` XML, which continuous integration shows.

use std::io::{self, BufWriter, Write};

use anyhow::{Context, Result};

use gpuprobe_model::Total;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::say;
use gpuprobe_report::gate::{GateReport, GateResult, Leak};
use gpuprobe_report::verdict::Verdict;
use gpuprobe_report::words::{amount, plural};

use super::tables::memory::frame_place;

/// Leaks that are named at most.
const MAX_NAMED: usize = 10;

/// Says why a run fails, and writes the XML that was asked for. Returns whether it fails.
///
/// # Errors
/// The XML cannot be written.
pub fn write(result: &GateResult) -> Result<bool> {
    let report = &result.report;
    lines(report).into_iter().for_each(say);
    if let Some((path, file)) = &result.junit {
        write_junit(report, BufWriter::new(file))
            .with_context(|| format!("cannot write to {}", path.display()))?;
    }
    Ok(report.failed)
}

/// The lines that are said at the end.
fn lines(result: &GateReport) -> Vec<String> {
    let mut lines = vec![headline(result)];
    let leaks = &result.leaks;
    lines.extend(leaks.iter().take(MAX_NAMED).map(line_of));
    if let Some(more) = leaks.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        let more = plural(more as u64, "more call site");
        lines.push(format!("  ... and {more}"));
    }
    for one in &result.excused {
        let stacks = plural(one.call_stacks, "call stack");
        let held = size(one.amount.bytes);
        let is_early = one.why == Verdict::TooEarly.name();
        let head = ["no leak", "not judged"][usize::from(is_early)];
        lines.push(format!("{head}: {held} at {stacks}, {}", one.why));
    }
    let unused = result.unused_suppressions.iter();
    lines.extend(unused.map(|text| format!("unused suppression: {text}")));
    if result.still_running > 0 {
        let running = plural(result.still_running, "process");
        lines.push(format!("not judged: {running} that still ran"));
    }
    lines
}

fn headline(result: &GateReport) -> String {
    let rules = match result.rules.join("; ") {
        rules if rules.is_empty() => rules,
        rules => format!(" ({rules})"),
    };
    if result.leaks.is_empty() {
        return format!("leaked: nothing{rules}");
    }
    let sites = plural(result.leaks.len() as u64, "call site");
    let held = amount(result.leaked.bytes, result.leaked.allocations);
    let tolerated = match result.tolerated_bytes {
        0 => String::new(),
        bytes => format!(" ({} tolerated)", size(bytes)),
    };
    format!("leaked: {held} at {sites}{tolerated}{rules}")
}

/// `8.00 MiB in 20 allocations  train.py:41 step  libtorch, python3 train.py pid 574`.
fn line_of(leak: &Leak) -> String {
    let held = amount(leak.amount.bytes, leak.amount.allocations);
    let held = leak.growth.as_ref().unwrap_or(&held);
    let before = before(leak);
    let Leak { label, owner, .. } = leak;
    format!("  {held}{before}  {label}  ({owner}, {})", who(leak))
}

/// The program and its processes.
fn who(Leak { program, pids, .. }: &Leak) -> String {
    match pids.as_slice() {
        [0] => program.clone(),
        [pid] => format!("{program} pid {pid}"),
        several => format!("{program} in {}", plural(several.len() as u64, "process")),
    }
}

/// The amount in the baseline, as text.
fn before(leak: &Leak) -> String {
    match leak.before.unwrap_or_default() {
        nothing if nothing == Total::default() => String::new(),
        held => format!(", {} in the baseline", amount(held.bytes, held.allocations)),
    }
}

/// Writes the test cases: those that failed, those that are excused or tolerated, or one that passed.
fn write_junit(result: &GateReport, mut out: impl Write) -> io::Result<()> {
    let tolerated = || format!("{} tolerated", size(result.tolerated_bytes));
    let why = (!result.failed).then(tolerated);
    let leaks = result.leaks.iter();
    let mut cases: Vec<_> = leaks.map(|leak| (leak, why.clone())).collect();
    for one in &result.excused {
        cases.extend(one.sites.iter().map(|site| (site, Some(one.why.clone()))));
    }
    let failures = cases.iter().filter(|(_, why)| why.is_none()).count();
    let (tests, skipped) = (cases.len().max(1), cases.len() - failures);
    let counts = format!(r#"tests="{tests}" failures="{failures}" errors="0" skipped="{skipped}""#);
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(
        out,
        r#"<testsuites {counts}><testsuite name="gpuprobe" {counts}>"#
    )?;
    let rules = xml(&result.rules.join("; "));
    writeln!(
        out,
        r#"<properties><property name="rule" value="{rules}"/></properties>"#
    )?;
    if cases.is_empty() {
        writeln!(out, r#"<testcase classname="gpuprobe" name="no leaks"/>"#)?;
    }
    for (index, (leak, why)) in cases.iter().enumerate() {
        let is_same =
            |(one, _): &&(&Leak, _)| (&one.program, &one.label) == (&leak.program, &leak.label);
        let number = match cases[..index].iter().filter(is_same).count() {
            0 => String::new(),
            earlier => format!(" ({})", earlier + 1),
        };
        let (program, label) = (xml(&leak.program), xml(&leak.label));
        let (what, body) = (xml(&what(leak)), xml(&body(leak)));
        writeln!(
            out,
            r#"<testcase classname="gpuprobe.{program}" name="{label}{number}">"#
        )?;
        match why {
            Some(why) => {
                let held = xml(&amount(leak.amount.bytes, leak.amount.allocations));
                let why = xml(why);
                writeln!(out, r#"<skipped message="{held}, {why}"/></testcase>"#)?;
            }
            None => writeln!(
                out,
                r#"<failure type="leak" message="{what}">{body}</failure></testcase>"#
            )?,
        }
    }
    writeln!(out, "</testsuite></testsuites>")?;
    out.flush()
}

/// How much leaked, and why it is a leak.
fn what(leak: &Leak) -> String {
    match &leak.growth {
        Some(growth) => format!("{growth}{}", before(leak)),
        None => {
            let held = amount(leak.amount.bytes, leak.amount.allocations);
            format!("{held} never freed{}", before(leak))
        }
    }
}

/// Bytes, count and stack.
fn body(leak: &Leak) -> String {
    let mut lines = vec![
        what(leak),
        format!("{} of {} in {}", leak.api, leak.owner, who(leak)),
    ];
    for frame in &leak.stack {
        let line = format!("  {}  {}", frame.function, frame_place(frame));
        lines.push(printable(&line));
    }
    if leak.stacks > 1 {
        lines.push(format!("the largest of {} call stacks", leak.stacks));
    }
    lines.join("\n")
}

/// The characters that XML can have, escaped.
fn xml(text: &str) -> String {
    let is_allowed = |c: &char| {
        let is_blank = matches!(c, '\t' | '\n');
        is_blank || (!c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}'))
    };
    let text: String = text.chars().filter(is_allowed).collect();
    quick_xml::escape::escape(text).into_owned()
}

#[cfg(test)]
mod tests;
