//! What a call site is called: the line or function that people know it by.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::fold::{Whose, is_interpreters, is_python, place};
use crate::names;
use gpuprobe_model::stack::Frame;
use gpuprobe_stacks::allocators::{down_to_start, first_user, is_inner};
use gpuprobe_stacks::cuda::file_name;

/// Callers that are named after a label at most, so that it is told apart from others.
const MAX_CALLERS: usize = 4;

/// The label of a call stack, innermost frame first: in a Python program the innermost line of the
/// user's own, else the first frame that is neither CUDA's nor an allocator's. Where only libraries'
/// Python has called native code of a framework, their line. None without any frame.
pub(crate) fn label(frames: &[Frame]) -> Option<String> {
    user_frame(frames).map(|index| described(&frames[index]))
}

/// Labels of several call stacks, each with the function that was called there: where stacks differ,
/// so do their labels, by as many callers as that takes.
pub(crate) fn labels(sites: &[(&[Frame], &str)]) -> Vec<String> {
    let mut labels: Vec<_> = sites
        .iter()
        .map(|(frames, api)| label(frames).unwrap_or_else(|| (*api).to_owned()))
        .collect();
    for index in calling_several(sites, &labels) {
        let (_, api) = sites[index];
        if !labels[index].ends_with(api) {
            labels[index] += &format!(" > {api}");
        }
    }
    for _ in 0..MAX_CALLERS {
        for group in alike(&labels) {
            tell_apart(&group, sites, &mut labels);
        }
    }
    for index in alike(&labels).into_iter().flatten() {
        let (_, api) = sites[index];
        if !labels[index].ends_with(api) {
            labels[index] += &format!(" > {api}");
        }
    }
    // What is left are places in one function, without lines.
    for index in alike(&labels).into_iter().flatten() {
        let (frames, _) = sites[index];
        if let Some(frame) = user_frame(frames).and_then(|index| frames.get(index)) {
            labels[index] += &match &frame.file {
                Some(file) if is_python(frame) => format!(" in {file}"),
                _ => format!(" @{:#x}", frame.address),
            };
        }
    }
    labels
}

/// The sites with a stack that calls several functions; of Python, with lines of the user's that do.
fn calling_several(sites: &[(&[Frame], &str)], labels: &[String]) -> Vec<usize> {
    type Alike<'a> = HashMap<(&'a str, Vec<&'a Frame>), Vec<usize>>;
    let mut seen: Alike<'_> = HashMap::new();
    for (index, (label, (frames, _))) in labels.iter().zip(sites).enumerate() {
        let of_user = |frame: &&Frame| Whose::of(frame) == Whose::User;
        let mut stack: Vec<_> = frames.iter().filter(of_user).collect();
        if stack.is_empty() {
            stack = frames.iter().collect();
        }
        seen.entry((label, stack)).or_default().push(index);
    }
    let is_several = |group: &Vec<usize>| {
        let mut called = group.iter().map(|&index| sites[index].1);
        let first = called.next();
        called.any(|api| Some(api) != first)
    };
    seen.into_values().filter(is_several).flatten().collect()
}

/// The labels that are not the only ones of their kind, together with those that are alike.
fn alike(labels: &[String]) -> Vec<Vec<usize>> {
    let mut seen: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, label) in labels.iter().enumerate() {
        seen.entry(label).or_default().push(index);
    }
    seen.into_values().filter(|group| group.len() > 1).collect()
}

/// Names in each of some labels that are alike the nearest caller that not all of them have.
fn tell_apart(group: &[usize], sites: &[(&[Frame], &str)], labels: &mut [String]) {
    let stacks: Vec<_> = group
        .iter()
        .map(|&index| beside_label(sites[index].0))
        .collect();
    let deepest = stacks.iter().map(Vec::len).max().unwrap_or(0);
    // What an earlier round has named, the whole group has.
    let at = |depth: usize| {
        stacks.iter().map(move |stack| {
            stack
                .get(depth)
                .map(|(sign, frame)| format!(" {sign} {}", described(frame)))
        })
    };
    let differs = |depth: &usize| {
        let mut here = at(*depth);
        let first = here.next().flatten();
        here.any(|other| other != first)
    };
    if let Some(depth) = (0..deepest).find(differs) {
        for (&index, caller) in group.iter().zip(at(depth)) {
            if let Some(caller) = caller {
                labels[index] += &caller;
            }
        }
    }
}

/// What tells a stack from others with the same labelled frame, in the order in which it is named: its
/// callers in the program (`<`), then what it called (`>`). Where the labelled frame is Python's, the
/// user's lines come before those of libraries, these before native code, and the interpreter last.
fn beside_label(frames: &[Frame]) -> Vec<(char, &Frame)> {
    let shown = down_to_start(frames, |frame| &frame.function);
    let Some(labelled) = user_frame(frames) else {
        return Vec::new();
    };
    let outside = frames.get(labelled + 1..shown).unwrap_or_default();
    let outside = outside.iter().map(|frame| ('<', frame));
    let inside = frames[..labelled].iter().rev().map(|frame| ('>', frame));
    let is_there = |(_, frame): &(char, &Frame)| Whose::of(frame) != Whose::Marker;
    let mut all: Vec<_> = outside.chain(inside).filter(is_there).collect();
    if is_python(&frames[labelled]) {
        all.sort_by_key(|(_, frame)| match Whose::of(frame) {
            Whose::User => 0,
            Whose::Library(_) => 1,
            Whose::Native if is_interpreters(frame) => 3,
            Whose::Native | Whose::Marker => 2,
        });
    }
    all
}

/// What was called at the labelled frame on the way to CUDA: `torch.zeros_like > cudaMalloc`. Below a
/// line of Python, what the innermost line of all has called.
pub(crate) fn via(frames: &[Frame], api: &str) -> String {
    let labelled = user_frame(frames).unwrap_or(0).min(frames.len());
    let called = &frames[..labelled];
    let called = &called[..called.iter().position(is_python).unwrap_or(labelled)];
    // A place without a name tells nobody anything, as where a thread begins.
    let is_named = |frame: &Frame| !frame.function.contains("+0x");
    let is_told = |frame: &&Frame| is_named(frame) && !is_inner(frame) && !is_interpreters(frame);
    match called
        .iter()
        .rev()
        .find(is_told)
        .map(|frame| names::simplify(&frame.function))
    {
        Some(first) if first != api => format!("{first} > {api}"),
        _ => api.to_owned(),
    }
}

/// The frame that a stack is labelled by.
fn user_frame(frames: &[Frame]) -> Option<usize> {
    let of_user = |frame: &Frame| Whose::of(frame) == Whose::User;
    if let Some(line) = frames.iter().position(of_user) {
        return Some(line);
    }
    let of_library = |frame: &Frame| matches!(Whose::of(frame), Whose::Library(_));
    match (first_user(frames), frames.iter().position(of_library)) {
        (Some(native), Some(python)) if is_framework(&frames[native]) => Some(python),
        (Some(native), _) => Some(native),
        // All are CUDA's or an allocator's: the outermost that is shown.
        (None, _) => down_to_start(frames, |frame| &frame.function).checked_sub(1),
    }
}

/// Whether a frame is of a framework that is used from Python, or of Python itself.
fn is_framework(frame: &Frame) -> bool {
    const FILES: &[&str] = &[
        "libtorch",
        "libc10",
        "_C.",
        "libxla",
        "xla_extension",
        "libtensorflow",
        "_pywrap_tensorflow",
        "libjax",
        "pjrt_c_api",
    ];
    let file = file_name(&frame.module);
    is_python(frame)
        || is_interpreters(frame)
        || FILES.iter().any(|begin| file.starts_with(begin))
        || frame.module.contains("/cupy/")
}

/// `file.c:58 function`, `libcublas: cublasCreate_v2`, or `module+0x1a3`.
fn described(frame: &Frame) -> String {
    if is_python(frame) {
        let file = frame.file.as_deref();
        let place = file.map_or(String::new(), |file| place(file, frame.line) + " ");
        return place + &frame.function;
    }
    let function = names::simplify(&frame.function);
    if let Some(file) = &frame.file {
        let line = frame.line.map_or(String::new(), |line| format!(":{line}"));
        return format!("{}{line} {function}", file_name(file));
    }
    let module = file_name(&frame.module);
    let module = module.split(".so").next().unwrap_or(module);
    if function.contains("+0x") || module.starts_with('[') || module.is_empty() {
        return function;
    }
    format!("{module}: {function}")
}
