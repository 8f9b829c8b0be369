//! Flame graphs, drawn by inferno.

use std::io::{self, Write};

use anyhow::{Context, Result};
use inferno::flamegraph::{Options, Palette, color::BasicPalette, from_lines};

use super::{Profile, Weight, folded};
use gpuprobe_model::text::size;

/// Draws `profile` as SVG.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, weight: Weight, out: &mut dyn Write) -> Result<()> {
    let mut options = Options::default();
    let sum = profile.sum(weight);
    options.title = format!("Memory {}", weight.describe());
    let mut subtitle = format!("{} in {} allocations", size(sum.bytes), sum.allocations);
    if !profile.left_out.is_empty() {
        subtitle += &format!("; without {}", profile.left_out.join(", "));
    }
    options.subtitle = Some(subtitle);
    options.count_name = "bytes".to_owned();
    options.name_type = "Function:".to_owned();
    options.colors = Palette::Basic(BasicPalette::Mem);
    options.deterministic = true;
    let lines = drawable(folded::lines(profile, weight));
    // One write at the end: a failed disk is then an error of ours, not of the drawing.
    let mut svg = Vec::new();
    let drawn = from_lines(&mut options, lines.iter().map(String::as_str), &mut svg);
    // Of nothing, a picture that says so is drawn, and an error is returned.
    if sum.bytes > 0 {
        drawn
            .map_err(|error| io::Error::other(error.to_string()))
            .context("cannot draw the flame graph")?;
    }
    out.write_all(&svg).context("cannot write the flame graph")
}

/// A program can ask for 2^64 - 1 bytes as often as it likes, and inferno adds weights up: where the
/// sum is more than any memory, all are made smaller alike.
fn drawable(lines: Vec<String>) -> Vec<String> {
    let split = |line: &str| {
        let (stack, weight) = line.rsplit_once(' ')?;
        Some((stack.to_owned(), weight.parse::<u64>().ok()?))
    };
    let weights = lines.iter().filter_map(|line| split(line));
    let sum: u128 = weights.map(|(_, weight)| u128::from(weight)).sum();
    let excess = (u128::BITS - sum.leading_zeros()).saturating_sub(MOST_BITS);
    if excess == 0 {
        return lines;
    }
    let smaller = |line: &String| {
        let (stack, weight) = split(line)?;
        Some(format!("{stack} {}", (weight >> excess.min(63)).max(1)))
    };
    lines.iter().filter_map(smaller).collect()
}

/// Bits of the largest sum that is drawn as it is: 4 PiB.
const MOST_BITS: u32 = 52;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_a_size_that_there_is() {
        let plain = vec!["a;b 5".to_owned(), "a 7".to_owned()];
        assert_eq!(drawable(plain.clone()), plain);
        let huge = vec![format!("a;b {}", u64::MAX), format!("a {}", u64::MAX / 2)];
        let made = drawable(huge);
        let weight = |line: &String| line.rsplit_once(' ').map(|(_, w)| w.parse::<u64>());
        let [first, second] = [&made[0], &made[1]].map(|line| weight(line).and_then(Result::ok));
        let (first, second) = (first.unwrap_or(0), second.unwrap_or(0));
        assert!(
            first
                .checked_add(second)
                .is_some_and(|sum| sum < 1 << MOST_BITS)
        );
        assert_eq!(first / 2, second);
    }
}
