//! Folded stacks, which every flame graph tool reads: `outermost;...;innermost bytes`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{Profile, Sample, Weight};
use gpuprobe_model::text::printable;

/// The lines, sorted, each stack once, those without weight left out.
pub fn lines(profile: &Profile, weight: Weight) -> Vec<String> {
    lines_by(profile, weight, |sample| stack(sample, profile.full_stacks))
}

/// The same of stacks that are written in another way.
pub(super) fn lines_by(
    profile: &Profile,
    weight: Weight,
    stack: impl Fn(&Sample) -> String,
) -> Vec<String> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for sample in &profile.samples {
        let bytes = sample.amount(weight).bytes;
        if bytes > 0 {
            let sum = stacks.entry(stack(sample)).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    let line = |(stack, bytes): (String, u64)| format!("{stack} {bytes}");
    stacks.into_iter().map(line).collect()
}

/// Writes the lines.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, weight: Weight, out: &mut dyn Write) -> io::Result<()> {
    let lines = lines(profile, weight);
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))
}

fn stack(sample: &Sample, full: bool) -> String {
    let frames = sample.told(full).rev().map(|frame| name(&frame.text()));
    let names: Vec<_> = std::iter::once(name(&sample.process))
        .chain(frames)
        .collect();
    names.join(";")
}

/// A name that is one frame in every tool: a semicolon would end it, and a number after a space
/// would be taken for its weight.
pub(super) fn name(text: &str) -> String {
    let mut name = printable(text).replace(';', ":");
    // No character of XML, which flame graphs are made of.
    name = name.replace(['\u{fffe}', '\u{ffff}'], "?");
    if let Some((before, last)) = name.rsplit_once(' ')
        && last.parse::<f64>().is_ok()
    {
        name = format!("{before}_{last}");
    }
    if name.is_empty() {
        "?".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_frame() {
        assert_eq!(name("a;b\n"), "a:b\\n");
        assert_eq!(name("thread 7"), "thread_7");
        assert_eq!(name("f(int, long)"), "f(int, long)");
        assert_eq!(name(""), "?");
    }
}
