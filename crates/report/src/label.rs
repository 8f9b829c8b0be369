//! Labels of call sites: the line or function that users recognise.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;
use std::iter;

use crate::fold::{FrameOrigin, is_interpreters, is_python, place};
use crate::names;
use crate::owners::is_framework_code;
use gpuprobe_model::stack::Frame;
use gpuprobe_stacks::allocators::{down_to_start, is_inner};
use gpuprobe_stacks::cuda::file_name;
use gpuprobe_stacks::owners::{CodeRole, role, stem};

/// Limit on the callers that a label begins with to make it unique.
const MAX_CALLERS: usize = 4;
/// Frames of a path in a label: the line that users look for is that of the helper, or of its caller, or of the
/// caller's.
const PATH: usize = 3;

/// The label of a call stack, innermost frame first: in a Python program the user's innermost lines, the outer one
/// first; else the program's frames and the library that they called, as `via libcufft`. If only library Python has
/// called native code of a framework, the library line. `None` without frames.
pub fn label(frames: &[Frame]) -> Option<String> {
    let index = user_frame(frames)?;
    let labelled = &frames[index];
    let mut path: Vec<_> = callers_alike(frames, index).map(described).collect();
    path.dedup();
    path.truncate(PATH);
    let mut label = path.pop().unwrap_or_default();
    let module = label.split_once(": ").map_or("", |(module, _)| module);
    let module = format!("{module}: ");
    for frame in path.iter().rev() {
        label += &format!(" > {}", frame.strip_prefix(&*module).unwrap_or(frame));
    }
    let is_called = |frame: &&Frame| rank(frame) < Rank::Inner && frame.module != labelled.module;
    let called = frames[..index].iter().rev().find(is_called);
    if let Some(called) = called.filter(|_| !is_python(labelled)) {
        label += &format!(" via {}", stem(file_name(&called.module)));
    }
    Some(label)
}

/// The labelled frame, and the callers of it that are as much the user's.
fn callers_alike(frames: &[Frame], index: usize) -> impl Iterator<Item = &Frame> {
    let labelled = &frames[index];
    let (of, ranked) = (FrameOrigin::of(labelled), rank(labelled));
    let is_alike = move |frame: &&Frame| match of {
        FrameOrigin::User => FrameOrigin::of(frame) == of,
        FrameOrigin::Native if ranked == Rank::Line => rank(frame) == ranked,
        FrameOrigin::Native if ranked == Rank::Named => {
            rank(frame) == ranked && frame.module == labelled.module
        }
        _ => false,
    };
    let shown = down_to_start(frames, |frame| &frame.function).max(index + 1);
    let callers = frames[index + 1..shown].iter().filter(is_alike);
    iter::once(labelled).chain(callers)
}

/// A label without the lines of callees: `train.py:88 step > allocate`.
pub fn shortened(label: &str) -> String {
    let mut parts = label.split(" > ");
    let outer = parts.next().unwrap_or(label);
    let is_line = |place: &str| {
        let line = place.rsplit_once(':').map_or("", |(_, line)| line);
        line.starts_with(|c: char| c.is_ascii_digit())
    };
    let name = |part| match str::split_once(part, ' ') {
        Some((place, name)) if is_line(place) => name,
        _ => part,
    };
    parts.fold(outer.to_owned(), |label, part| label + " > " + name(part))
}

/// Files and lines in the label of a call stack, the innermost first.
pub(crate) fn lines(frames: &[Frame]) -> impl Iterator<Item = (&str, u32)> {
    let path = user_frame(frames).into_iter();
    let path = path.flat_map(|index| callers_alike(frames, index));
    path.filter_map(|frame| frame.file.as_deref().zip(frame.line))
}

/// Labels of several call stacks, each with the function called there. Different stacks have different labels: where
/// their innermost lines are the same, they begin with as many callers as that takes.
pub fn labels<'a>(sites: impl IntoIterator<Item = (&'a [Frame], &'a str)>) -> Vec<String> {
    let sites: Vec<_> = sites.into_iter().collect();
    let name = |(frames, api): &(&[Frame], &str)| label(frames).unwrap_or_else(|| (*api).into());
    let mut labels: Vec<_> = sites.iter().map(name).collect();
    let append_api = |labels: &mut [String], index: usize| {
        let (_, api) = sites[index];
        if !labels[index].ends_with(api) {
            labels[index] += &format!(" > {api}");
        }
    };
    for index in calling_several(&sites, &labels) {
        append_api(&mut labels, index);
    }
    for _ in 0..MAX_CALLERS {
        for group in alike(&labels) {
            add_callers(&group, &sites, &mut labels);
        }
    }
    for index in alike(&labels).into_iter().flatten() {
        append_api(&mut labels, index);
    }
    // The rest are places in one function, without line information.
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

/// The sites with stacks that call several functions; in Python, with several from the user's
/// lines.
fn calling_several(sites: &[(&[Frame], &str)], labels: &[String]) -> Vec<usize> {
    let call_one = |group: &[usize]| are_equal(group.iter().map(|&index| sites[index].1));
    let all: Vec<_> = (0..sites.len()).collect();
    if call_one(&all) {
        return Vec::new();
    }
    let key = |index: usize| {
        let frames = sites[index].0.iter();
        let of_user = |frame: &&Frame| FrameOrigin::of(frame) == FrameOrigin::User;
        let mut stack: Vec<_> = frames.clone().filter(of_user).collect();
        if stack.is_empty() {
            stack = frames.collect();
        }
        (&labels[index], stack)
    };
    let groups = grouped(all.into_iter().map(|index| (key(index), index)));
    groups.filter(|group| !call_one(group)).flatten().collect()
}

/// Groups of sites with equal labels.
fn alike(labels: &[String]) -> Vec<Vec<usize>> {
    let groups = grouped(labels.iter().zip(0..));
    groups.filter(|group| group.len() > 1).collect()
}

fn grouped<K: Hash + Eq>(
    sites: impl Iterator<Item = (K, usize)>,
) -> impl Iterator<Item = Vec<usize>> {
    let mut groups: HashMap<K, Vec<usize>> = HashMap::new();
    for (key, index) in sites {
        groups.entry(key).or_default().push(index);
    }
    groups.into_values()
}

fn are_equal<T: PartialEq>(mut all: impl Iterator<Item = T>) -> bool {
    let first = all.next();
    all.all(|other| Some(other) == first)
}

/// Adds to each label of a group of equal ones the nearest caller, or else callee, that not all of them share.
fn add_callers(group: &[usize], sites: &[(&[Frame], &str)], labels: &mut [String]) {
    let stacks = group.iter().map(|&index| beside_label(sites[index].0));
    let stacks: Vec<_> = stacks.collect();
    let deepest = stacks.iter().map(Vec::len).max().unwrap_or(0);
    let at = |depth: usize| stacks.iter().map(move |stack| stack.get(depth));
    let text = |other: Option<&(bool, &Frame)>| other.map(|(_, frame)| described(frame));
    // Callers that an earlier round has appended are shared by the whole group. Equal frames are
    // described alike, and most are equal.
    let differs = |&depth: &usize| !are_equal(at(depth)) && !are_equal(at(depth).map(text));
    if let Some(depth) = (0..deepest).find(differs) {
        for (&index, other) in group.iter().zip(at(depth)) {
            let label = &labels[index];
            labels[index] = match other {
                Some((true, caller)) => format!("{} > ... > {label}", described(caller)),
                Some((false, callee)) => with_callee(label, callee),
                None => continue,
            };
        }
    }
}

/// A label with a callee at its end. Of callees without a name in the library that it names, the last is enough:
/// `plan.cu:23 make via libcufft+0x31adcb`.
fn with_callee(label: &str, callee: &Frame) -> String {
    let via = format!(" via {}", stem(file_name(&callee.module)));
    match (label.find(&via), callee.function.rsplit_once('+')) {
        (Some(at), Some((_, offset))) if !callee.is_named() => {
            format!("{}{via}+{offset}", &label[..at])
        }
        _ => format!("{label} > {}", described(callee)),
    }
}

/// Frames that distinguish a stack from others with the same label, in the order in which they are added, and whether
/// they are callers: its callers in the program, then its callees. For a labelled Python frame, the user's lines come
/// before library lines, these before native code, and the interpreter last.
fn beside_label(frames: &[Frame]) -> Vec<(bool, &Frame)> {
    let shown = down_to_start(frames, |frame| &frame.function);
    let Some(labelled) = user_frame(frames) else {
        return Vec::new();
    };
    let outside = frames.get(labelled + 1..shown).unwrap_or_default();
    let outside = outside.iter().map(|frame| (true, frame));
    let inside = frames[..labelled].iter().rev().map(|frame| (false, frame));
    let is_there = |(_, frame): &(bool, &Frame)| FrameOrigin::of(frame) != FrameOrigin::Marker;
    let mut all: Vec<_> = outside.chain(inside).filter(is_there).collect();
    if is_python(&frames[labelled]) {
        all.sort_by_key(|(_, frame)| match FrameOrigin::of(frame) {
            FrameOrigin::User => 0,
            FrameOrigin::Library => 1,
            FrameOrigin::Native if is_interpreters(frame) => 3,
            FrameOrigin::Native | FrameOrigin::Marker => 2,
        });
    }
    all
}

/// Calls from the labelled frame to CUDA: `torch.zeros_like > cudaMalloc`. For a Python line, the
/// calls from the innermost line of all.
pub fn via(frames: &[Frame], api: &str) -> String {
    let labelled = user_frame(frames).unwrap_or(0).min(frames.len());
    let called = &frames[..labelled];
    let called = &called[..called.iter().position(is_python).unwrap_or(labelled)];
    // A frame without a name is not informative, as at the start of a thread.
    let is_shown = |frame: &&Frame| frame.is_named() && !is_inner(frame) && !is_interpreters(frame);
    let mut outer = called.iter().rev();
    let first = outer.find(is_shown);
    match first.map(|frame| names::simplify(&frame.function)) {
        Some(first) if first != api => format!("{first} > {api}"),
        _ => api.to_owned(),
    }
}

/// Index of the frame that labels the stack.
fn user_frame(frames: &[Frame]) -> Option<usize> {
    let first = |origin| {
        let mut all = frames.iter();
        all.position(|frame| FrameOrigin::of(frame) == origin)
    };
    let shown = down_to_start(frames, |frame| &frame.function);
    let native = || {
        let ranks = || frames[..shown].iter().map(rank).enumerate();
        let (native, rank) = ranks().min_by_key(|(_, rank)| *rank)?;
        let is_bare = rank >= Rank::Bare || is_framework(&frames[native]);
        match first(FrameOrigin::Library).filter(|_| is_bare) {
            Some(python) => Some(python),
            // All belong to CUDA or an allocator: the outermost frame shown.
            None if rank == Rank::Inner => shown.checked_sub(1),
            None => Some(native),
        }
    };
    first(FrameOrigin::User).or_else(native)
}

/// How well a native frame labels its call site, best first; of equal ones the innermost does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Code with debug information: the user's own, as libraries are shipped without.
    Line,
    Named,
    /// Without a name, or an interpreter's or the system's.
    Bare,
    /// CUDA's or an allocator's.
    Inner,
}

fn rank(frame: &Frame) -> Rank {
    let is_systems = role(&frame.module) == CodeRole::PassThrough && !frame.module.starts_with('[');
    match frame {
        _ if is_inner(frame) => Rank::Inner,
        _ if is_python(frame) || is_interpreters(frame) || is_systems => Rank::Bare,
        _ if frame.line.is_some() => Rank::Line,
        _ if frame.is_named() => Rank::Named,
        _ => Rank::Bare,
    }
}

/// Whether the frame belongs to a framework used from Python, or to Python itself.
fn is_framework(frame: &Frame) -> bool {
    is_python(frame) || is_interpreters(frame) || is_framework_code(&frame.module)
}

/// A Python function's qualified name without what CPython adds for functions in functions:
/// `Model.__init__.<locals>.<listcomp>` is `Model.__init__`.
pub fn python_name(qualified: &str) -> String {
    let comprehensions = ["<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"];
    let parts = qualified.split('.');
    let shown = parts.filter(|part| *part != "<locals>" && !comprehensions.contains(part));
    match shown.collect::<Vec<_>>().join(".") {
        empty if empty.is_empty() => qualified.to_owned(),
        name => name,
    }
}

/// A frame as `file.c:58 function`, `libcublas: cublasCreate_v2`, or `module+0x1a3`.
fn described(frame: &Frame) -> String {
    if is_python(frame) {
        let file = frame.file.as_deref();
        let place = file.map_or(String::new(), |file| place(file, frame.line) + " ");
        return place + &python_name(&frame.function);
    }
    let function = names::simplify(&frame.function);
    if let Some(file) = &frame.file {
        let line = frame.line.map_or(String::new(), |line| format!(":{line}"));
        return format!("{}{line} {function}", file_name(file));
    }
    let module = file_name(&frame.module);
    let module = module.split(".so").next().unwrap_or(module);
    if !frame.is_named() || module.starts_with('[') || module.is_empty() {
        return function;
    }
    format!("{module}: {function}")
}
