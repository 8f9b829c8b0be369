//! `JUnit` XML, which continuous integration shows: a failed test for each leak.

use std::io::{self, BufWriter, Write};

use hashbrown::HashMap;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::text::{before, who};
use super::{GateResult, Leak};
use crate::fold;
use crate::words::amount;
use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::printable;
use gpuprobe_stacks::allocators::down_to_start;
use gpuprobe_stacks::cuda::file_name;

/// Writes the test cases: those that failed, or one that did not.
pub(super) fn write(judgement: &GateResult, out: impl Write) -> io::Result<()> {
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
    let mut seen: HashMap<(&str, &str), u64> = HashMap::new();
    for leak in leaks {
        let count = seen.entry((&leak.program, &leak.label)).or_default();
        *count += 1;
        let name = match *count {
            1 => text(&leak.label),
            number => format!("{} ({number})", text(&leak.label)),
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
    let shown = down_to_start(&leak.stack, |frame| &frame.function);
    lines.extend(leak.stack[..shown].iter().map(line));
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
        fold::FrameOrigin::Native => format!("  ({})", file_name(&frame.module)),
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
