//! Call stacks below the rows of a table: of Python programs the user's lines first, the rest in a line each.

use gpuprobe_model::text::printable;
use gpuprobe_os::terminal::Layout;

use super::page::commas;
use super::table;
use crate::tables::memory::FRAMES;
use gpuprobe_report::fold::{Folded, down_to_start, file_name, place};
use gpuprobe_report::memleak::SiteReport;
use gpuprobe_report::words::{dim, plural};
use gpuprobe_report::{View, names};

/// Lines that a site of a Python program takes at most, unless every frame is asked for.
pub(super) const LISTING: usize = 12;

/// The last line of a stack that does not reach the beginning of its thread.
const UNKNOWN_CALLER: &str = "      ... what called this is not known";

/// Columns in front of a frame.
const INDENT: usize = 6;

/// The lines of the stack of a site, `max` at most if it is folded.
pub(super) fn lines(site: &SiteReport, view: &View, layout: Layout, max: usize) -> Vec<String> {
    let cut = (!site.complete).then(|| dim(UNKNOWN_CALLER));
    if let Some(stack) = site.folded.as_ref().filter(|_| !view.full_stacks) {
        let max = max.saturating_sub(cut.iter().len());
        let mut lines = folded(stack, site.variants, view.depth, layout, max);
        lines.extend(cut);
        return lines;
    }
    if site.stack.is_empty() && site.omitted_frames == 0 {
        return vec![note("(no call stack)")];
    }
    let shown = match view.full_stacks {
        true => &site.stack[..],
        false => down_to_start(&site.stack),
    };
    let mut lines = table::lines(FRAMES, shown, INDENT, layout);
    match site.omitted_frames {
        0 => lines.extend(cut.filter(|_| shown.len() == site.stack.len())),
        more => lines.push(note(&format!("... {}", plural(more, "more frame")))),
    }
    lines
}

/// The user's lines, what is missing, the libraries, and the native function that Python called, in the first of so
/// many variants of the stack.
pub(super) fn folded(
    folded: &Folded,
    variants: u64,
    depth: Option<usize>,
    layout: Layout,
    max: usize,
) -> Vec<String> {
    let room = layout.columns.unwrap_or(usize::MAX).saturating_sub(INDENT);
    let sum = plural(folded.library_frames(), "library frame");
    let libraries = match counts(&folded.libraries) {
        nothing if nothing.is_empty() => nothing,
        all => format!("… {sum}: {all}"),
    };
    let markers = counts(&folded.markers);
    let besides = [markers, libraries, context(folded, variants)];
    let besides = besides.iter().filter(|line| !line.is_empty());
    let besides: Vec<_> = besides.map(|line| note(&names::cut(line, room))).collect();
    let max = max.saturating_sub(besides.len()).max(1);
    let lines = table::lines(FRAMES, &folded.lines, INDENT, layout);
    let mut lines = ends(lines, depth, max);
    lines.extend(besides);
    lines
}

fn note(said: &str) -> String {
    format!("{:INDENT$}{}", "", dim(said))
}

/// The innermost and the outermost of the lines, `max` in all, of which one says how many are left out.
fn ends(mut lines: Vec<String>, depth: Option<usize>, max: usize) -> Vec<String> {
    let count = lines.len();
    let (inner, outer) = match depth {
        Some(depth) if depth < count => (depth.min(max - 1), 0),
        _ if count <= max => return lines,
        _ => (max - 1 - (max - 1) / 3, (max - 1) / 3),
    };
    let more = plural((count - inner - outer) as u64, "more frame");
    lines.splice(inner..count - outer, [note(&format!("… {more}"))]);
    lines
}

/// `transformers 14, torch.nn 9`.
fn counts(all: &[(String, u64)]) -> String {
    let all = all.iter();
    commas(all.map(|(what, count)| format!("{} {count}", printable(what))))
}

/// `libtorch_cuda: at::_ops::mul_Tensor  (2 more native stacks)`.
fn context(folded: &Folded, variants: u64) -> String {
    let mut parts = Vec::new();
    if let Some(frame) = &folded.context {
        let function = printable(&names::qualified(&frame.function));
        let module = file_name(&frame.module);
        let module = printable(module.split(".so").next().unwrap_or(module));
        parts.push(
            match function.starts_with(&module) || module.starts_with('[') {
                true => function,
                false => format!("{module}: {function}"),
            },
        );
        let file = frame.file.iter();
        parts.extend(file.map(|file| printable(&place(file, frame.line))));
    }
    if variants > 1 {
        parts.push(format!("({})", plural(variants - 1, "more native stack")));
    }
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use gpuprobe_model::stack::{Frame, Language, Location, bare_frame};
    use gpuprobe_model::text::width;
    use gpuprobe_os::color::unpainted;
    use proptest::prelude::*;

    use super::*;

    fn frame((function, file, line, source): (String, Option<String>, u32, String)) -> Frame {
        Frame {
            function,
            file,
            line: Some(line).filter(|&line| line > 0),
            source: Some(source).filter(|source| !source.is_empty()),
            module: String::new(),
            language: Language::Python,
            ..bare_frame(&Location::python(line))
        }
    }

    fn native_frame((function, module): (String, String)) -> Frame {
        Frame {
            function,
            module,
            ..bare_frame(&Location::python(0))
        }
    }

    fn layout(columns: usize) -> Layout {
        Layout {
            columns: Some(columns),
            ..Layout::default()
        }
    }

    /// Files of users and of packages, and what a program may call its files.
    fn file() -> impl Strategy<Value = Option<String>> {
        prop_oneof![
            Just(None),
            "/home/[a-z]{1,60}/[a-z_]{1,60}\\.py".prop_map(Some),
            "/v/site-packages/\\PC{1,40}/x\\.py".prop_map(Some),
            "\\PC{0,80}".prop_map(Some),
            any::<String>().prop_map(Some),
        ]
    }

    fn stack() -> impl Strategy<Value = Vec<Frame>> {
        let text = || prop_oneof!["[a-z.<>]{1,120}", any::<String>()];
        let line = (text(), file(), 0_u32..200_000, text()).prop_map(frame);
        let native = (
            text(),
            prop_oneof!["/usr/bin/python3", "/x/lib[a-z]{1,50}\\.so"],
        );
        let one = prop_oneof![3 => line, 1 => native.prop_map(native_frame)];
        proptest::collection::vec(one, 1..60)
    }

    proptest! {
        #[test]
        fn a_stack_is_a_few_lines_of_the_page(
            frames in stack(),
            columns in 30_usize..220,
            most in 4_usize..12,
            depth in proptest::option::of(0_usize..50),
            variants in 0_u64..5,
        ) {
            let Some(folded) = Folded::of(&frames) else {
                prop_assert!(frames.iter().all(|frame| frame.language == Language::Native));
                return Ok(());
            };
            // Every line of Python is somewhere.
            let python = frames.iter().filter(|frame| frame.language == Language::Python).count();
            let mut told = folded.lines.len() as u64;
            folded.libraries.iter().chain(&folded.markers).for_each(|(_, count)| told += count);
            prop_assert_eq!(told, python as u64);
            let lines = super::folded(&folded, variants, depth, layout(columns), most);
            prop_assert!(!lines.is_empty() && lines.len() <= most, "{:?}", lines);
            for line in &lines {
                let line = &unpainted(line);
                prop_assert!(width(line) <= columns, "{} of {}: {:?}", width(line), columns, line);
                prop_assert!(line.chars().all(|c| !c.is_control()), "{:?}", line);
            }
        }
    }
}
