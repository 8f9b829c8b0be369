//! Flame graphs, drawn by inferno.

use std::io::{self, Write};

use anyhow::{Context, Result};
use inferno::flamegraph::{Options, Palette, color::BasicPalette, from_lines};

use super::{Profile, Weight, folded};
use crate::report::size;

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
    let lines = folded::lines(profile, weight);
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
