//! Flame graphs, drawn by inferno.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

use anyhow::{Context, Result};
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Options, from_lines};

use super::layers::CodeLayer;
use super::{Profile, ProfileFrame, StackSample, Weight, folded};
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
    let shown = FrameStyle::of(profile, weight);
    let mut palette = shown.palette.clone();
    let mut options = Options::default();
    let sum = profile.sum(weight);
    options.title = format!("Memory {}", weight.describe());
    if let Some(run) = &profile.run {
        options.title += &format!(": {}", names::cut(&printable(run), 90));
    }
    let mut subtitle = amount(sum.bytes, sum.allocations);
    if !profile.left_out.is_empty() {
        subtitle += &format!("; without {}", profile.left_out.join(", "));
    }
    options.subtitle = Some(subtitle);
    options.count_name = "bytes".to_owned();
    options.name_type = "Function:".to_owned();
    options.bgcolors = Some(BackgroundColor::Flat(WHITE));
    options.palette_map = Some(&mut palette);
    options.deterministic = true;
    let lines = drawable(shown.lines(profile, weight));
    // One write at the end: a failed write is then an error of the output, not of the drawing.
    let mut svg = Vec::new();
    let drawn = from_lines(&mut options, lines.iter().map(String::as_str), &mut svg);
    // Without anything to draw, inferno draws a picture that says so, and returns an error.
    if sum.bytes > 0 {
        drawn
            .map_err(|error| io::Error::other(error.to_string()))
            .context("cannot draw the flame graph")?;
    }
    let svg = String::from_utf8_lossy(&svg);
    let svg = with_legend(with_root(&svg, &shown.root), &shown.layers);
    out.write_all(svg.as_bytes())
        .context("cannot write the flame graph")
}

/// How frames are shown.
struct FrameStyle<'a> {
    /// Shown names of native functions.
    functions: HashMap<&'a str, String>,
    /// Text of the lowest frame.
    root: String,
    /// Whether processes have frames of their own.
    with_processes: bool,
    palette: PaletteMap,
    /// Layers of the frames drawn.
    layers: Vec<CodeLayer>,
}

impl<'a> FrameStyle<'a> {
    fn of(profile: &'a Profile, weight: Weight) -> Self {
        let is_drawn = |one: &&StackSample| one.amount(weight).bytes > 0;
        let drawn = || profile.samples.iter().filter(is_drawn);
        let frames = || drawn().flat_map(|sample| sample.visible(profile.full_stacks));
        let native = frames().filter(|frame| frame.language == Language::Native);
        let functions: BTreeSet<&str> = native.map(|frame| &*frame.function).collect();
        let functions: Vec<_> = functions.into_iter().collect();
        let short = names::fit(&functions, usize::MAX).into_iter();
        let short = short.map(|name| folded::name(&name));
        let functions = functions.iter().copied().zip(short).collect();
        let processes: BTreeSet<&str> = drawn().map(|sample| &*sample.process).collect();
        let mut palette = PaletteMap::default();
        for process in &processes {
            palette.insert(folded::name(process), PROCESS);
        }
        palette.insert("", PROCESS);
        let root = match processes.len() {
            0 | 1 => processes
                .first()
                .map_or(String::new(), |one| printable(one)),
            count => format!("{count} processes"),
        };
        let mut shown = Self {
            functions,
            root,
            with_processes: processes.len() > 1,
            palette,
            layers: Vec::new(),
        };
        let mut layers = BTreeSet::new();
        for frame in frames() {
            let (layer, name) = (CodeLayer::of(frame), shown.name(frame));
            layers.insert(layer);
            shown.palette.insert(name.as_str(), layer.shade(&name));
        }
        shown.layers = layers.into_iter().collect();
        shown
    }

    /// Text of a frame.
    fn name(&self, frame: &ProfileFrame) -> String {
        let known = self.functions.get(&*frame.function);
        known
            .filter(|_| !frame.language.is_python())
            .cloned()
            .unwrap_or_else(|| folded::name(&frame.text()))
    }

    fn lines(&self, profile: &Profile, weight: Weight) -> Vec<String> {
        let stack = |sample: &StackSample| {
            let process = self.with_processes.then(|| folded::name(&sample.process));
            let frames = sample.visible(profile.full_stacks).rev();
            let frames = frames.map(|frame| self.name(frame));
            let names: Vec<_> = process.into_iter().chain(frames).collect();
            names.join(";")
        };
        folded::lines_by(profile, weight, stack)
    }
}

/// Replaces the name of the lowest frame, which inferno calls `all`.
fn with_root(svg: &str, root: &str) -> String {
    const BEGIN: &str = "<title>all (";
    const END: &str = "</text>";
    let found = svg.match_indices(BEGIN).find_map(|(at, _)| {
        let title_end = at + svg[at..].find("</title>")?;
        // A function of that name has a percentage with decimals.
        let is_root = svg[..title_end].ends_with(" bytes, 100%)");
        is_root.then(|| Some((at, at + svg[at..].find(END)?)))?
    });
    let Some((begin, end)) = found.filter(|_| !root.is_empty()) else {
        return svg.to_owned();
    };
    let root = escaped(root);
    let title = svg[begin..end].replacen("all (", &format!("{root} ("), 1);
    [&svg[..begin], &title, &root, &svg[end..]].concat()
}

fn escaped(text: &str) -> String {
    let text = text.replace(['\u{fffe}', '\u{ffff}'], "?");
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

/// Height of the legend below the picture, in pixels.
const LEGEND_HEIGHT: u32 = 24;

/// Adds a legend of the colours below the picture.
fn with_legend(svg: String, layers: &[CodeLayer]) -> String {
    let Some(height) = height_of(&svg).filter(|_| !layers.is_empty()) else {
        return svg;
    };
    let taller = height + LEGEND_HEIGHT;
    let mut legend = String::new();
    let mut x = 10;
    for layer in CodeLayer::ALL.iter().filter(|layer| layers.contains(layer)) {
        let (colour, name) = (layer.colour(), layer.name());
        let Color { r, g, b } = colour;
        legend += &format!(
            "<rect x=\"{x}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"rgb({r},{g},{b})\"/>\
             <text x=\"{}\" y=\"{}\">{name}</text>",
            height + 2,
            x + 20,
            height + 13,
        );
        x += 40 + 8 * u32::try_from(name.len()).unwrap_or(0);
    }
    let svg = svg.replacen(
        &format!("height=\"{height}\""),
        &format!("height=\"{taller}\""),
        1,
    );
    let svg = svg.replacen(&format!(" {height}\""), &format!(" {taller}\""), 1);
    let ground = format!("width=\"100%\" height=\"{height}\"");
    let svg = svg.replacen(&ground, &format!("width=\"100%\" height=\"{taller}\""), 1);
    match svg.rsplit_once("</svg>") {
        Some((before, after)) => format!("{before}<g id=\"layers\">{legend}</g></svg>{after}"),
        None => svg,
    }
}

/// Height of the whole picture, in pixels.
fn height_of(svg: &str) -> Option<u32> {
    let (_, rest) = svg.split_once("<svg ")?;
    let (_, rest) = rest.split_once("height=\"")?;
    rest.split('"').next()?.parse().ok()
}

/// Scales the weights down if their sum exceeds any possible memory: a program can request 2^64 - 1
/// bytes repeatedly, and inferno adds up weights.
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

/// Bits of the largest sum that is drawn unchanged: 4 PiB.
const MOST_BITS: u32 = 52;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use gpuprobe_model::Total;

    fn sample(process: &str, frames: &[(&str, &str)], bytes: u64) -> StackSample {
        let frame = |(function, module): &(&str, &str)| ProfileFrame {
            function: (*function).into(),
            module: (*module).into(),
            file: None,
            line: None,
            address: 0,
            language: Language::Native,
            inlined: false,
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
    fn the_root_is_the_process_and_names_are_short() {
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
        assert!(
            svg.contains("<title>py&lt;3 (12 bytes, 100%)</title>"),
            "{svg}"
        );
        assert!(svg.contains(">py&lt;3</text>"));
        assert!(svg.contains("<title>all (8 bytes, 66.67%)</title>"));
        assert!(svg.contains("<title>a::all (8 bytes, 66.67%)</title>"));
        assert!(svg.contains("<title>at::grow&lt;float, 4&gt; (8 bytes"));
        assert!(svg.contains("Memory live at the end: python3 train.py, NVIDIA H200"));
        // Layers without frames are not in the legend.
        let legend = &svg[svg.find("id=\"layers\"").unwrap()..];
        assert!(
            ["program", "framework", "CUDA"]
                .iter()
                .all(|name| legend.contains(name))
        );
        assert!(!legend.contains("Python"));
        let two = drawn(vec![sample("a", &stack, 8), sample("b", &stack, 8)]);
        assert!(
            two.contains("<title>2 processes (16 bytes, 100%)</title>"),
            "{two}"
        );
        assert!(two.contains("<title>a (8 bytes, 50.00%)</title>"));
    }

    #[test]
    fn the_height_includes_the_legend() {
        let svg = drawn(vec![sample("p", &[("main", "/app")], 1)]);
        let height = height_of(&svg).unwrap();
        assert!(svg.contains(&format!("viewBox=\"0 0 1200 {height}\"")));
        assert!(svg.contains(&format!("width=\"100%\" height=\"{height}\"")));
    }

    #[test]
    fn sums_are_scaled_to_a_possible_size() {
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
