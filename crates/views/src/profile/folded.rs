//! Folded stacks, the input of flame graph tools: `outermost;...;innermost bytes`.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;

use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::printable;
use gpuprobe_report::fold;
use gpuprobe_report::profile::{Profile, visible};

/// Writes the folded lines, sorted, each stack once, without those of weight 0.
pub(super) fn write(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    for (stack, bytes) in stacks(profile, fold::text) {
        writeln!(out, "{stack} {bytes}")?;
    }
    Ok(())
}

/// Bytes by stack, with these names of frames.
pub(super) fn stacks(profile: &Profile, text: impl Fn(&Frame) -> String) -> BTreeMap<String, u64> {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for sample in &profile.samples {
        let bytes = sample.amount(profile.weight).bytes;
        if bytes > 0 {
            let frames = visible(&sample.frames, profile.full_stacks).rev();
            let frames = frames.map(|frame| name(&text(frame)));
            let names = std::iter::once(name(&sample.process)).chain(frames);
            let stack = names.collect::<Vec<_>>().join(";");
            let sum = stacks.entry(stack).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    stacks
}

/// Escapes a name: a semicolon would end the frame, and a number after a space would be taken for
/// its weight.
fn name(text: &str) -> String {
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
