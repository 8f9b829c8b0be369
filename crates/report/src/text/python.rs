//! Stacks of Python programs, for people: the user's lines first, the rest in a line each.

use gpuprobe_model::stack::Frame;
use gpuprobe_model::text::{printable, width as count};
use gpuprobe_stacks::cuda::file_name;

use crate::fold::{Folded, FrameOrigin, place};
use crate::names::{self, cut};
use crate::words::{dim, plural};

/// Between two columns.
const GAP: usize = 2;
/// Minimum width of a file with its line, and of a name.
const MIN_WIDTH: usize = 12;
/// Minimum width of a source line; a narrower one is left out.
const MIN_SOURCE_WIDTH: usize = 10;

/// How much of a stack is written.
pub(super) struct StackLength {
    /// Columns of a line.
    pub(super) columns: usize,
    /// Lines at most.
    pub(super) lines: usize,
    /// Lines of the user's at most.
    pub(super) depth: Option<usize>,
}

/// The lines of a stack: the user's, what is missing, the libraries, and the native function that
/// Python called, in the first of so many variants of the stack.
pub(super) fn lines(folded: &Folded, variants: u64, room: &StackLength) -> Vec<String> {
    let besides = [
        markers(folded),
        libraries(folded, room),
        context(folded, variants),
    ];
    let besides: Vec<_> = besides.into_iter().flatten().collect();
    let all = table(&folded.lines, room.columns);
    let left = room.lines.saturating_sub(besides.len()).max(1);
    let (inner, outer) = ends(all.len(), room.depth, left);
    let mut lines = all[..inner].to_vec();
    let more = all.len() - inner - outer;
    if more > 0 {
        let whose = if has_user(folded) { "user" } else { "library" };
        let more = plural(more as u64, &format!("more {whose} frame"));
        lines.push(dim(&format!("… {more}")));
    }
    lines.extend_from_slice(&all[all.len() - outer..]);
    lines.extend(besides.iter().map(|line| dim(&cut(line, room.columns))));
    lines
}

/// How many of the innermost and of the outermost of `count` lines are shown in `left` lines, of which
/// one says what is not.
pub(super) fn ends(count: usize, depth: Option<usize>, left: usize) -> (usize, usize) {
    match depth {
        Some(depth) if depth < count => (depth.min(left - 1), 0),
        _ if count <= left => (count, 0),
        _ => {
            let outer = (left - 1) / 3;
            (left - 1 - outer, outer)
        }
    }
}

fn has_user(folded: &Folded) -> bool {
    let first = folded.lines.first();
    first.is_some_and(|frame| FrameOrigin::of(frame) == FrameOrigin::User)
}

/// `train.py:41  training_step  loss = model(x).loss`, aligned.
fn table(frames: &[Frame], columns: usize) -> Vec<String> {
    let cells = |frame: &Frame| {
        let file = frame.file.as_deref().unwrap_or_default();
        let source = frame.source.as_deref().unwrap_or_default();
        [
            printable(&place(file, frame.line)),
            printable(&frame.function),
            printable(source.replace('\t', " ").trim()),
        ]
    };
    let rows: Vec<_> = frames.iter().map(cells).collect();
    let longest = |column: usize| {
        rows.iter()
            .map(|row: &[String; 3]| count(&row[column]))
            .max()
    };
    let [places, functions, sources] = [0, 1, 2].map(|column| longest(column).unwrap_or(0));
    let place_width = places.min(MIN_WIDTH.max(columns / 3));
    let rest = columns.saturating_sub(place_width + GAP);
    let has_room = rest >= MIN_WIDTH + GAP + MIN_SOURCE_WIDTH;
    let most = if sources > 0 && has_room {
        rest.div_ceil(2)
    } else {
        rest
    };
    let function_width = functions.min(most.max(MIN_WIDTH)).min(rest);
    let source_width = rest.saturating_sub(function_width + GAP);
    let line = |[place, function, source]: &[String; 3]| {
        let (place, function) = (cut(place, place_width), cut(function, function_width));
        let padding = " ".repeat(place_width.saturating_sub(count(&place)) + GAP);
        let mut line = format!("{place}{padding}{function}");
        if !source.is_empty() && source_width >= MIN_SOURCE_WIDTH {
            let padding = function_width.saturating_sub(count(&function)) + GAP;
            line.extend(std::iter::repeat_n(' ', padding));
            line += &cut(source, source_width);
        }
        line
    };
    rows.iter().map(line).collect()
}

/// `[unreadable Python frame] (3 times)`.
fn markers(folded: &Folded) -> Option<String> {
    let one = |(marker, count): &(String, u64)| match count {
        1 => printable(marker),
        _ => format!("{} ({count} times)", printable(marker)),
    };
    let all: Vec<_> = folded.markers.iter().map(one).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// `… 31 library frames: transformers 14, torch.nn 9, torch.autograd 8`, as many of them as there is
/// room for.
fn libraries(folded: &Folded, room: &StackLength) -> Option<String> {
    let sum: u64 = folded.libraries.iter().map(|(_, count)| count).sum();
    let what = if has_user(folded) {
        "library frame"
    } else {
        "more library frame"
    };
    let mut line = format!("… {}", plural(sum, what));
    for (index, (package, frames)) in folded.libraries.iter().enumerate() {
        let sign = if index == 0 { ":" } else { "," };
        let next = format!("{sign} {} {frames}", printable(package));
        // The last has to leave no room for the others.
        let is_last = index + 1 == folded.libraries.len();
        let taken = count(&line) + count(&next) + if is_last { 0 } else { ", ...".len() };
        if taken > room.columns {
            line += if index == 0 { "" } else { ", ..." };
            break;
        }
        line += &next;
    }
    (sum > 0).then_some(line)
}

/// `libtorch_cuda: at::_ops::mul_Tensor  (2 more native stacks)`.
fn context(folded: &Folded, variants: u64) -> Option<String> {
    let more = match variants {
        0 | 1 => String::new(),
        _ => format!("  ({})", plural(variants - 1, "more native stack")),
    };
    let Some(frame) = &folded.context else {
        return (!more.is_empty()).then(|| more.trim_start().to_owned());
    };
    let function = printable(&names::qualified(&frame.function));
    let module = file_name(&frame.module);
    let module = printable(module.split(".so").next().unwrap_or(module));
    let mut line = match function.starts_with(&module) || module.starts_with('[') {
        true => function,
        false => format!("{module}: {function}"),
    };
    if let Some(file) = &frame.file {
        line += &format!("  {}", printable(&place(file, frame.line)));
    }
    Some(line + &more)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use gpuprobe_model::stack::{Language, Location, bare_frame};
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
            columns in 24_usize..220,
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
            let counted = folded.libraries.iter().chain(&folded.markers).map(|(_, count)| count);
            prop_assert_eq!(folded.lines.len() as u64 + counted.sum::<u64>(), python as u64);
            let room = StackLength { columns, lines: most, depth };
            let lines = lines(&folded, variants, &room);
            prop_assert!(!lines.is_empty() && lines.len() <= most, "{:?}", lines);
            for line in &lines {
                let line = &unpainted(line);
                prop_assert!(count(line) <= columns, "{} of {}: {:?}", count(line), columns, line);
                prop_assert!(line.chars().all(|c| !c.is_control()), "{:?}", line);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_shortened_in_its_middle() {
        let one = |function: &str, file: &str, source: &str| {
            let file = Some(file.to_owned());
            frame((function.into(), file, 41, source.into()))
        };
        let frames = [
            one(
                "training_step",
                "/home/ada/train.py",
                "\tloss = model(x,\tlabels=x).loss  ",
            ),
            one(
                "run_with_a_name_that_is_long",
                "/home/ada/with_a_name_that_is_long.py",
                "run()",
            ),
        ];
        assert_eq!(
            table(&frames, 54),
            [
                "train.py:41         training_step      loss = …x).loss",
                "with_a_na…ng.py:41  run_with…_is_long  run()",
            ]
        );
    }
}
