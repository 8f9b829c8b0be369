//! Flame graphs, drawn by inferno.

use std::io::{self, Write};

use anyhow::{Context, Result};
use inferno::flamegraph::color::{BasicPalette, Palette};
use inferno::flamegraph::{Options, from_lines};

use super::folded;
use gpuprobe_model::stack::Language;
use gpuprobe_model::text::printable;
use gpuprobe_report::profile::Profile;
use gpuprobe_report::words::amount;
use gpuprobe_report::{fold, names};

/// Draws `profile` as SVG.
///
/// # Errors
///
/// Returns an error if the flame graph cannot be drawn or `out` cannot be written.
pub fn write(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    let stacks = folded::stacks(profile, |frame| match frame.language {
        Language::Native => names::simplify(&frame.function),
        Language::Python => fold::text(frame),
    });
    let mut options = Options::default();
    options.title = format!("Memory {}", profile.weight.describe());
    if let Some(run) = &profile.run {
        options.title += &format!(": {}", names::cut(&printable(run), 90));
    }
    let mut subtitle = amount(profile.sum.bytes, profile.sum.allocations);
    if !profile.left_out.is_empty() {
        subtitle += &format!("; without {}", profile.left_out.join(", "));
    }
    options.subtitle = Some(subtitle);
    options.count_name = "bytes".to_owned();
    options.name_type = "Function:".to_owned();
    options.colors = Palette::Basic(BasicPalette::Mem);
    options.deterministic = true;
    // A program can request 2^64 - 1 bytes repeatedly, and inferno adds up weights.
    let most = u64::MAX / 2 / stacks.len().max(1) as u64;
    let lines = stacks.into_iter();
    let lines = lines.map(|(stack, bytes)| format!("{stack} {}", bytes.min(most)));
    let lines: Vec<_> = lines.collect();
    // One write at the end: a failed write is then an error of the output, not of the drawing.
    let mut svg = Vec::new();
    let drawn = from_lines(&mut options, lines.iter().map(String::as_str), &mut svg);
    // Without anything to draw, inferno draws a picture that says so, and returns an error.
    if profile.sum.bytes > 0 {
        drawn
            .map_err(|error| io::Error::other(error.to_string()))
            .context("cannot draw the flame graph")?;
    }
    out.write_all(&svg).context("cannot write the flame graph")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use gpuprobe_model::Total;
    use gpuprobe_model::stack::Frame;
    use gpuprobe_report::profile::{StackSample, named_frame};

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
            labels: Rc::from([]),
            frames: frames.iter().map(frame).collect(),
            live: amount,
            total: amount,
        }
    }

    fn drawn(samples: Vec<StackSample>) -> String {
        let mut sum = Total::default();
        samples.iter().for_each(|sample| sum.merge(sample.live));
        let profile = Profile {
            samples,
            sum,
            run: Some("python3 train.py, NVIDIA H200".into()),
            ..Profile::default()
        };
        let mut out = Vec::new();
        write(&profile, &mut out).unwrap();
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
    }

    #[test]
    fn impossible_sizes_are_drawn() {
        let svg = drawn(vec![
            sample("a", &[("f", "")], u64::MAX),
            sample("b", &[("f", "")], u64::MAX),
        ]);
        assert!(svg.contains("<title>a ("), "{svg}");
    }
}
