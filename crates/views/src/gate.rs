//! The result of `--fail-on-leak`: a few lines for people, and `JUnit` XML, which continuous integration shows.

use std::io::{self, BufWriter, Write};

use anyhow::{Context, Result};

use gpuprobe_model::Total;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::say;
use gpuprobe_report::gate::{GateResult, Leak};
use gpuprobe_report::words::{amount, plural};

use super::tables::memory::frame_place;

/// Leaks that are named at most.
const MAX_NAMED: usize = 10;

/// Says why a run fails, and writes the XML that was asked for. Returns whether it fails.
///
/// # Errors
/// The XML cannot be written.
pub fn write(result: &GateResult) -> Result<bool> {
    lines(result).into_iter().for_each(say);
    if let Some((path, file)) = &result.junit {
        write_junit(result, BufWriter::new(file))
            .with_context(|| format!("cannot write to {}", path.display()))?;
    }
    Ok(result.fails())
}

/// The lines that are said at the end.
fn lines(result: &GateResult) -> Vec<String> {
    let mut lines = vec![headline(result)];
    let leaks = &result.leaks;
    lines.extend(leaks.iter().take(MAX_NAMED).map(line_of));
    if let Some(more) = leaks.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        let more = plural(more as u64, "more call site");
        lines.push(format!("  ... and {more}"));
    }
    for (why, stacks, held) in &result.excused {
        let stacks = plural(*stacks, "call stack");
        lines.push(format!("no leak: {} at {stacks} {why}", size(held.bytes)));
    }
    let unused = result.unused.iter();
    lines.extend(unused.map(|text| format!("unused suppression: {text}")));
    if result.running > 0 {
        let running = plural(result.running, "process");
        lines.push(format!("not judged: {running} that still ran"));
    }
    lines
}

fn headline(result: &GateResult) -> String {
    if result.leaks.is_empty() {
        return "leaked: nothing".to_owned();
    }
    let sites = plural(result.leaks.len() as u64, "call site");
    let held = amount(result.leaked.bytes, result.leaked.allocations);
    let tolerated = match result.tolerated_bytes {
        0 => String::new(),
        bytes => format!(" ({} tolerated)", size(bytes)),
    };
    format!("leaked: {held} at {sites}{tolerated}")
}

/// `8.00 MiB in 20 allocations  train.py:41 step  libtorch, python3 train.py pid 574`.
fn line_of(leak: &Leak) -> String {
    let held = amount(leak.amount.bytes, leak.amount.allocations);
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

/// Writes the test cases: those that failed, or one that did not.
fn write_junit(result: &GateResult, mut out: impl Write) -> io::Result<()> {
    let leaks = if result.fails() {
        &result.leaks[..]
    } else {
        &[]
    };
    let (tests, failures) = (leaks.len().max(1), leaks.len());
    let counts = format!(r#"tests="{tests}" failures="{failures}" errors="0" skipped="0""#);
    writeln!(out, r#"<?xml version="1.0" encoding="UTF-8"?>"#)?;
    writeln!(
        out,
        r#"<testsuites {counts}><testsuite name="gpuprobe" {counts}>"#
    )?;
    if leaks.is_empty() {
        writeln!(out, r#"<testcase classname="gpuprobe" name="no leaks"/>"#)?;
    }
    for (index, leak) in leaks.iter().enumerate() {
        let is_same = |one: &&Leak| (&one.program, &one.label) == (&leak.program, &leak.label);
        let number = match leaks[..index].iter().filter(is_same).count() {
            0 => String::new(),
            earlier => format!(" ({})", earlier + 1),
        };
        let (program, label) = (xml(&leak.program), xml(&leak.label));
        let (what, body) = (xml(&never_freed(leak)), xml(&body(leak)));
        writeln!(
            out,
            r#"<testcase classname="gpuprobe.{program}" name="{label}{number}">"#
        )?;
        writeln!(
            out,
            r#"<failure type="leak" message="{what}">{body}</failure></testcase>"#
        )?;
    }
    writeln!(out, "</testsuite></testsuites>")?;
    out.flush()
}

fn never_freed(leak: &Leak) -> String {
    let held = amount(leak.amount.bytes, leak.amount.allocations);
    format!("{held} never freed{}", before(leak))
}

/// Bytes, count and stack.
fn body(leak: &Leak) -> String {
    let mut lines = vec![
        never_freed(leak),
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
