//! The result of `--fail-on-leak`: a few lines for people, and `JUnit` XML, which continuous integration shows.

use std::io::{self, BufWriter, Write};

use anyhow::{Context, Result};
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use gpuprobe_model::Total;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, size};
use gpuprobe_os::say;
use gpuprobe_report::fold;
use gpuprobe_report::gate::{GateResult, Leak};
use gpuprobe_report::words::{amount, plural};

/// Leaks that are named at most.
const MAX_NAMED: usize = 10;

/// Says why a run fails, and writes the XML that was asked for. Returns whether it fails.
///
/// # Errors
/// The XML cannot be written.
pub fn write(result: &GateResult) -> Result<bool> {
    lines(result).into_iter().for_each(say);
    if let Some((path, file)) = &result.junit {
        write_junit(result, file).with_context(|| format!("cannot write to {}", path.display()))?;
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
    for (text, place) in &result.unused {
        lines.push(format!("unused suppression: {} ({place})", printable(text)));
    }
    if result.running > 0 {
        let running = plural(result.running, "process");
        lines.push(format!(
            "not judged: {running} that did not end while traced"
        ));
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
fn who(leak: &Leak) -> String {
    match leak.pids.as_slice() {
        [0] => leak.program.clone(),
        [pid] => format!("{} pid {pid}", leak.program),
        several => {
            let several = plural(several.len() as u64, "process");
            format!("{} in {several}", leak.program)
        }
    }
}

/// The amount in the baseline, as text.
fn before(leak: &Leak) -> String {
    let known = leak.before.filter(|before| *before != Total::default());
    known.map_or(String::new(), |before| {
        let held = amount(before.bytes, before.allocations);
        format!(", {held} in the baseline")
    })
}

/// Writes the test cases: those that failed, or one that did not.
fn write_junit(judgement: &GateResult, out: impl Write) -> io::Result<()> {
    let leaks: &[Leak] = if judgement.fails() {
        &judgement.leaks
    } else {
        &[]
    };
    let (tests, failures) = (leaks.len().max(1).to_string(), leaks.len().to_string());
    let counts = [
        ("tests", tests.as_str()),
        ("failures", &failures),
        ("errors", "0"),
        ("skipped", "0"),
    ];
    let mut writer = Writer::new_with_indent(BufWriter::new(out), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let suites = writer.create_element("testsuites").with_attributes(counts);
    suites.write_inner_content(|writer| {
        let suite = writer.create_element("testsuite");
        let suite = suite
            .with_attribute(("name", "gpuprobe"))
            .with_attributes(counts);
        suite.write_inner_content(|writer| cases(writer, leaks))?;
        Ok(())
    })?;
    let mut out = writer.into_inner();
    out.write_all(b"\n")?;
    out.flush()
}

fn cases(writer: &mut Writer<impl Write>, leaks: &[Leak]) -> io::Result<()> {
    if leaks.is_empty() {
        let names = [("classname", "gpuprobe"), ("name", "no leaks")];
        writer
            .create_element("testcase")
            .with_attributes(names)
            .write_empty()?;
    }
    for (index, leak) in leaks.iter().enumerate() {
        let is_same = |one: &&Leak| (&one.program, &one.label) == (&leak.program, &leak.label);
        let name = match leaks[..index].iter().filter(is_same).count() {
            0 => text(&leak.label),
            earlier => format!("{} ({})", text(&leak.label), earlier + 1),
        };
        let class = format!("gpuprobe.{}", text(&leak.program));
        let case = writer.create_element("testcase");
        let case = case.with_attributes([("classname", class.as_str()), ("name", &name)]);
        case.write_inner_content(|writer| failure(writer, leak))?;
    }
    Ok(())
}

fn failure(writer: &mut Writer<impl Write>, leak: &Leak) -> io::Result<()> {
    let held = amount(leak.amount.bytes, leak.amount.allocations);
    let message = text(&format!("{held} never freed{}", before(leak)));
    let failure = writer.create_element("failure");
    let failure = failure.with_attributes([("type", "leak"), ("message", &message)]);
    failure.write_text_content(BytesText::new(&text(&body(leak))))?;
    Ok(())
}

/// Bytes, count and stack.
fn body(leak: &Leak) -> String {
    let held = amount(leak.amount.bytes, leak.amount.allocations);
    let mut lines = vec![
        format!("{held} never freed{}", before(leak)),
        format!("{} of {} in {}", leak.api, leak.owner, who(leak)),
    ];
    lines.extend(leak.stack.iter().map(line));
    if leak.stacks > 1 {
        lines.push(format!("the largest of {} call stacks", leak.stacks));
    }
    lines.join("\n")
}

/// `  grow  /src/pool.h:17  (train)`.
fn line(frame: &Frame) -> String {
    let place = frame.file.as_deref().map(|file| match frame.line {
        Some(line) => format!("  {file}:{line}"),
        None => format!("  {file}"),
    });
    let module = match fold::FrameOrigin::of(frame) {
        fold::FrameOrigin::Native => format!("  ({})", fold::place(&frame.module, None)),
        _ => String::new(),
    };
    let place = place.unwrap_or_default();
    printable(&format!("  {}{place}{module}", frame.function))
}

/// The characters that XML can have, escaped or not.
fn text(text: &str) -> String {
    let is_allowed = |c: &char| {
        let is_blank = matches!(c, '\t' | '\n');
        is_blank || (!c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}'))
    };
    text.chars().filter(is_allowed).collect()
}

#[cfg(test)]
mod tests;
