//! Call stacks below the rows of a table: of Python programs the user's lines first, the rest in a line each.

use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::printable;
use gpuprobe_os::terminal::Layout;

use super::table;
use crate::tables::memory::FRAMES;
use gpuprobe_report::fold::{Folded, FrameOrigin, down_to_start, file_name, place};
use gpuprobe_report::memleak::SiteReport;
use gpuprobe_report::words::{dim, plural};
use gpuprobe_report::{View, names};

/// Lines that a site of a Python program takes at most, unless every frame is asked for.
pub(super) const LISTING: usize = 12;

/// The last line of a stack that does not reach the beginning of its thread.
const UNKNOWN_CALLER: &str = "      ... what called this is not known";

/// Columns in front of a frame.
const INDENT: usize = 6;

/// How stacks are written.
pub(super) struct StackDetail<'a> {
    pub(super) view: &'a View,
    pub(super) layout: Layout,
    /// The program is Python's: what has no Python in it is folded too.
    pub(super) is_python: bool,
}

impl StackDetail<'_> {
    /// The lines of the stack of a site, of a Python program `max` at most.
    pub(super) fn lines(&self, site: &SiteReport, max: usize) -> Vec<String> {
        let is_whole = self.view.full_stacks || self.view.stacks_native;
        if let Some(folded) = site.folded.as_ref().filter(|_| !is_whole) {
            let cut = (!site.complete).then(|| dim(UNKNOWN_CALLER));
            let max = max.saturating_sub(cut.iter().len());
            let mut lines = self.folded(folded, site.variants, max);
            lines.extend(cut);
            return lines;
        }
        if site.stack.is_empty() && site.omitted_frames == 0 {
            return vec![note("(no call stack)")];
        }
        let shown = match self.view.full_stacks {
            true => &site.stack[..],
            false => down_to_start(&site.stack),
        };
        let mut lines = self.frames(shown);
        if site.omitted_frames > 0 {
            let more = plural(site.omitted_frames, "more frame");
            lines.push(note(&format!("... {more}")));
        } else if !site.complete && shown.len() == site.stack.len() {
            lines.push(dim(UNKNOWN_CALLER));
        }
        match self.is_python && !is_whole && lines.len() > max {
            true => ends(lines, None, max, "frame", " (--full-stacks)"),
            false => lines,
        }
    }

    fn frames(&self, frames: &[Frame]) -> Vec<String> {
        table::lines(FRAMES, frames, INDENT, self.layout)
    }

    /// The user's lines, what is missing, the libraries, and the native function that Python called, in the first of
    /// so many variants of the stack.
    pub(super) fn folded(&self, folded: &Folded, variants: u64, max: usize) -> Vec<String> {
        let columns = self.layout.columns.unwrap_or(usize::MAX);
        let room = columns.saturating_sub(INDENT);
        let besides = [
            counts(&folded.markers),
            libraries(folded),
            context(folded, variants),
        ];
        let besides = besides.iter().filter(|line| !line.is_empty());
        let besides: Vec<_> = besides.map(|line| note(&names::cut(line, room))).collect();
        let max = max.saturating_sub(besides.len()).max(1);
        let whose = match has_user(folded) {
            true => "user frame",
            false => "library frame",
        };
        let lines = self.frames(&folded.lines);
        let mut lines = ends(lines, self.view.depth, max, whose, "");
        lines.extend(besides);
        lines
    }
}

fn note(said: &str) -> String {
    format!("{:INDENT$}{}", "", dim(said))
}

/// The innermost and the outermost of the lines, `max` in all, of which one says how many are left out.
fn ends(
    mut lines: Vec<String>,
    depth: Option<usize>,
    max: usize,
    what: &str,
    how: &str,
) -> Vec<String> {
    let count = lines.len();
    let (inner, outer) = match depth {
        Some(depth) if depth < count => (depth.min(max - 1), 0),
        _ if count <= max => return lines,
        _ => (max - 1 - (max - 1) / 3, (max - 1) / 3),
    };
    let more = plural((count - inner - outer) as u64, &format!("more {what}"));
    lines.splice(inner..count - outer, [note(&format!("… {more}{how}"))]);
    lines
}

fn has_user(folded: &Folded) -> bool {
    let first = folded.lines.first();
    first.is_some_and(|frame| FrameOrigin::of(frame) == FrameOrigin::User)
}

/// `transformers 14, torch.nn 9`.
fn counts(all: &[(String, u64)]) -> String {
    let all = all.iter();
    let all = all.map(|(what, count)| format!("{} {count}", printable(what)));
    all.collect::<Vec<_>>().join(", ")
}

/// `… 31 library frames: transformers 14, torch.nn 9, torch.autograd 8`.
fn libraries(folded: &Folded) -> String {
    let more = if has_user(folded) { "" } else { "more " };
    match folded.library_frames() {
        0 => String::new(),
        sum => {
            let sum = plural(sum, &format!("{more}library frame"));
            format!("… {sum}: {}", counts(&folded.libraries))
        }
    }
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
    use gpuprobe_model::stack::{Language, Location, bare_frame};
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
            let view = View { depth, ..View::default() };
            let detail = StackDetail { view: &view, layout: layout(columns), is_python: true };
            let lines = detail.folded(&folded, variants, most);
            prop_assert!(!lines.is_empty() && lines.len() <= most, "{:?}", lines);
            for line in &lines {
                let line = &unpainted(line);
                prop_assert!(width(line) <= columns, "{} of {}: {:?}", width(line), columns, line);
                prop_assert!(line.chars().all(|c| !c.is_control()), "{:?}", line);
            }
        }
    }
}
