//! Flame graphs, drawn by inferno.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

use anyhow::{Context, Result};
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Options, from_lines};

use super::layers::CodeLayer;
use super::{Profile, Weight, folded, frame_text};
use crate::names;
use crate::words::amount;
use gpuprobe_model::stack::Language;
use gpuprobe_model::text::printable;

/// Colour of the background.
const WHITE: Color = Color {
    r: 255,
    g: 255,
    b: 255,
};
/// Colour of frames that stand for processes.
const PROCESS: Color = Color {
    r: 226,
    g: 226,
    b: 226,
};

/// Draws `profile` as SVG.
///
/// # Errors
///
/// Returns an error if the flame graph cannot be drawn or `out` cannot be written.
pub fn write(profile: &Profile, weight: Weight, out: &mut dyn Write) -> Result<()> {
    let functions = short_functions(profile);
    let mut palette = PaletteMap::default();
    // The lowest frame.
    palette.insert("", PROCESS);
    let mut layers = BTreeSet::new();
    let stacks = folded::stacks(profile, weight, |sample| {
        let process = folded::name(&sample.process);
        palette.insert(process.as_str(), PROCESS);
        let mut names = vec![process];
        for frame in sample.visible(profile.full_stacks).rev() {
            let short = functions.get(frame.function.as_str());
            let name = match short.filter(|_| !frame.language.is_python()) {
                Some(short) => short.clone(),
                None => folded::name(&frame_text(frame)),
            };
            let layer = CodeLayer::of(frame);
            layers.insert(layer);
            palette.insert(name.as_str(), layer.shade(&name));
            names.push(name);
        }
        names.join(";")
    });
    let sum = profile.sum(weight);
    let mut options = Options::default();
    options.title = format!("Memory {}", weight.describe());
    if let Some(run) = &profile.run {
        options.title += &format!(": {}", names::cut(&printable(run), 90));
    }
    let mut subtitle = amount(sum.bytes, sum.allocations);
    if !profile.left_out.is_empty() {
        subtitle += &format!("; without {}", profile.left_out.join(", "));
    }
    let legend: Vec<_> = layers.into_iter().map(CodeLayer::legend).collect();
    options.subtitle = Some(format!("{subtitle}; colours: {}", legend.join(", ")));
    options.count_name = "bytes".to_owned();
    options.name_type = "Function:".to_owned();
    options.bgcolors = Some(BackgroundColor::Flat(WHITE));
    options.palette_map = Some(&mut palette);
    options.deterministic = true;
    let lines = drawable(stacks);
    // One write at the end: a failed write is then an error of the output, not of the drawing.
    let mut svg = Vec::new();
    let drawn = from_lines(&mut options, lines.iter().map(String::as_str), &mut svg);
    // Without anything to draw, inferno draws a picture that says so, and returns an error.
    if sum.bytes > 0 {
        drawn
            .map_err(|error| io::Error::other(error.to_string()))
            .context("cannot draw the flame graph")?;
    }
    out.write_all(&svg).context("cannot write the flame graph")
}

/// Short names of native functions, different ones for different functions.
fn short_functions(profile: &Profile) -> HashMap<&str, String> {
    let samples = profile.samples.iter();
    let frames = samples.flat_map(|sample| sample.visible(profile.full_stacks));
    let native = frames.filter(|frame| frame.language == Language::Native);
    let functions: BTreeSet<&str> = native.map(|frame| frame.function.as_str()).collect();
    let functions: Vec<_> = functions.into_iter().collect();
    let short = names::fit(&functions, usize::MAX).into_iter();
    let short = short.map(|name| folded::name(&name));
    functions.iter().copied().zip(short).collect()
}

/// The lines of `stacks`. Weights are scaled down if their sum exceeds any possible memory: a program can request
/// 2^64 - 1 bytes repeatedly, and inferno adds up weights.
fn drawable(stacks: BTreeMap<String, u64>) -> Vec<String> {
    let sum: u128 = stacks.values().map(|&bytes| u128::from(bytes)).sum();
    let excess = (u128::BITS - sum.leading_zeros()).saturating_sub(MOST_BITS);
    let scaled = |bytes: u64| match excess {
        0 => bytes,
        _ => (bytes >> excess.min(63)).max(1),
    };
    let stacks = stacks.into_iter();
    stacks
        .map(|(stack, bytes)| format!("{stack} {}", scaled(bytes)))
        .collect()
}

/// Bits of the largest sum that is drawn unchanged: 4 PiB.
const MOST_BITS: u32 = 52;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::views::profile::{StackSample, named_frame};
    use gpuprobe_model::Total;
    use gpuprobe_model::stack::Frame;

    fn sample(process: &str, frames: &[(&str, &str)], bytes: u64) -> StackSample {
        let frame = |(function, module): &(&str, &str)| Frame {
            module: (*module).to_owned(),
            ..named_frame(function)
        };
        let amount = Total {
            bytes,
            allocations: 1,
        };
        StackSample {
            process: Rc::from(process),
            pid: 1,
            frames: frames.iter().map(frame).collect(),
            live: amount,
            total: amount,
        }
    }

    fn drawn(samples: Vec<StackSample>) -> String {
        let profile = Profile {
            samples,
            run: Some("python3 train.py, NVIDIA H200".into()),
            ..Profile::default()
        };
        let mut out = Vec::new();
        write(&profile, Weight::End, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn processes_are_frames_and_names_are_short() {
        let stack = [
            ("cudaMalloc", "/libcudart.so"),
            (
                "void at::grow<float, (int)4>(unsigned long)",
                "/libtorch.so",
            ),
            ("all", "/app"),
            ("a::all", "/app"),
        ];
        let svg = drawn(vec![
            sample("py<3", &stack, 8),
            sample("py<3", &stack[..1], 4),
        ]);
        for title in [
            "all (12 bytes, 100%)",
            "py&lt;3 (12 bytes, 100.00%)",
            "all (8 bytes, 66.67%)",
            "a::all (8 bytes, 66.67%)",
            "at::grow&lt;float, 4&gt; (8 bytes, 66.67%)",
        ] {
            assert!(
                svg.contains(&format!("<title>{title}</title>")),
                "{title} in {svg}"
            );
        }
        assert!(svg.contains("Memory live at the end: python3 train.py, NVIDIA H200"));
        // Layers without frames are not in the legend.
        let legend = "colours: orange the program, green frameworks, violet CUDA";
        assert!(svg.contains(legend), "{svg}");
    }

    #[test]
    fn sums_are_scaled_to_a_possible_size() {
        let stacks = |weights: [u64; 2]| {
            let named = ["a", "a;b"].map(str::to_owned).into_iter();
            drawable(named.zip(weights).collect())
        };
        assert_eq!(stacks([7, 5]), ["a 7", "a;b 5"]);
        let made = stacks([u64::MAX, u64::MAX / 2]);
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
