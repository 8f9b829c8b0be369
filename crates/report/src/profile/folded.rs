//! Folded stacks, the input of flame graph tools: `outermost;...;innermost bytes`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{Profile, StackSample, Weight};
use gpuprobe_model::text::printable;

/// The folded lines, sorted, each stack once, without those of weight 0.
pub fn lines(profile: &Profile, weight: Weight) -> Vec<String> {
    lines_by(profile, weight, |sample| stack(sample, profile.full_stacks))
}

/// The same with another format of stacks.
pub(super) fn lines_by(
    profile: &Profile,
    weight: Weight,
    stack: impl Fn(&StackSample) -> String,
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

/// Writes the folded lines.
pub fn write(profile: &Profile, weight: Weight, out: &mut dyn Write) -> io::Result<()> {
    let lines = lines(profile, weight);
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))
}

fn stack(sample: &StackSample, full: bool) -> String {
    let frames = sample.visible(full).rev().map(|frame| name(&frame.text()));
    let names: Vec<_> = std::iter::once(name(&sample.process))
        .chain(frames)
        .collect();
    names.join(";")
}

/// Escapes a name: a semicolon would end the frame, and a number after a space would be taken for
/// its weight.
pub(super) fn name(text: &str) -> String {
    let mut name = printable(text).replace(';', ":");
    // These characters are not allowed in XML, the format of flame graphs.
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
    fn a_name_stays_one_frame() {
        assert_eq!(name("a;b\n"), "a:b\\n");
        assert_eq!(name("thread 7"), "thread_7");
        assert_eq!(name("f(int, long)"), "f(int, long)");
        assert_eq!(name(""), "?");
    }
}
