//! Folding of call stacks in Python programs: the user's own lines, and a summary of the rest.
//!
//! The same rule decides what is shown of a stack and which stacks are one call site: the frames of
//! the user's Python files count; without any, all Python frames; without Python, the whole stack.

use std::collections::HashMap;

use gpuprobe_model::stack::{Frame, Language};
use gpuprobe_stacks::allocators::{self, is_inner};
pub(crate) use gpuprobe_stacks::cuda::file_name;
use gpuprobe_stacks::cuda::is_own;
use gpuprobe_stacks::python::origin::{FileOrigin, is_interpreter};

/// Library lines shown if the stack has no user lines.
const LIBRARY_LINES: usize = 2;

/// Owner of a frame, as far as Python is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameOrigin<'a> {
    /// A line of the user's own Python.
    User,
    /// A line of an installed package or of the standard library.
    Library(FileOrigin<'a>),
    /// A marker for missing Python frames.
    Marker,
    /// Native code, including the interpreter's.
    Native,
}

impl<'a> FrameOrigin<'a> {
    /// Classifies `frame` by its language and file.
    pub(crate) fn of(frame: &'a Frame) -> Self {
        match (frame.language, &frame.file) {
            (Language::Native, _) => Self::Native,
            (Language::Python, None) => Self::Marker,
            (Language::Python, Some(file)) => match FileOrigin::of(file) {
                FileOrigin::User => Self::User,
                library => Self::Library(library),
            },
        }
    }
}

/// A folded stack with Python frames.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    /// The user's lines, innermost first; without any, the innermost library lines.
    pub lines: Vec<Frame>,
    /// Number of further library lines by package, largest first.
    pub libraries: Vec<(String, u64)>,
    /// Markers for missing Python frames, and their number.
    pub markers: Vec<(String, u64)>,
    /// The native function called by Python: the innermost that belongs neither to CUDA nor to an
    /// allocator.
    pub context: Option<Frame>,
}

impl Folded {
    /// Folds a stack; `None` if it has no Python frame.
    pub(crate) fn of(frames: &[Frame]) -> Option<Self> {
        let first = frames.iter().position(is_python)?;
        let python = || frames.iter().filter(|frame| is_python(frame));
        let of_user = |frame: &&Frame| FrameOrigin::of(frame) == FrameOrigin::User;
        let is_library = |frame: &&Frame| matches!(FrameOrigin::of(frame), FrameOrigin::Library(_));
        let mut lines: Vec<_> = python().filter(of_user).cloned().collect();
        let mut libraries: Vec<_> = python().filter(is_library).collect();
        if lines.is_empty() {
            let innermost = libraries.drain(..libraries.len().min(LIBRARY_LINES));
            lines = innermost.cloned().collect();
        }
        let package =
            |frame: &Frame| FileOrigin::of(frame.file.as_deref().unwrap_or_default()).to_string();
        let mut libraries = counts(libraries.into_iter().map(package));
        libraries.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        let is_marker = |frame: &&Frame| FrameOrigin::of(frame) == FrameOrigin::Marker;
        let markers = python().filter(is_marker);
        Some(Self {
            lines,
            libraries,
            markers: counts(markers.map(|frame| frame.function.clone())),
            context: context(&frames[..first]).cloned(),
        })
    }
}

/// Number of occurrences of each text, in order of first occurrence.
fn counts(texts: impl Iterator<Item = String>) -> Vec<(String, u64)> {
    let mut counts: Vec<(String, u64)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for text in texts {
        let place = *places.entry(text.clone()).or_insert_with(|| {
            counts.push((text, 0));
            counts.len() - 1
        });
        counts[place].1 += 1;
    }
    counts
}

/// The most informative of the native frames called by the innermost Python line. Frames of the
/// interpreter are used only if there are no others, as for ctypes.
fn context(called: &[Frame]) -> Option<&Frame> {
    let is_shown = |frame: &&Frame| !is_inner(frame);
    let mut told = called.iter().filter(is_shown);
    let others = told.clone();
    others
        .clone()
        .find(|frame| !is_interpreters(frame))
        .or_else(|| told.next())
}

/// The frames down to the start of the program or thread.
pub(crate) fn down_to_start(frames: &[Frame]) -> &[Frame] {
    &frames[..allocators::down_to_start(frames, |frame| &frame.function)]
}

/// Whether it is a Python frame.
pub(crate) fn is_python(frame: &Frame) -> bool {
    frame.language.is_python()
}

/// Whether it is native code of the interpreter, or of its foreign function interface.
pub(crate) fn is_interpreters(frame: &Frame) -> bool {
    !is_python(frame) && !is_own(frame) && is_interpreter(&frame.function, &frame.module)
}

/// File and line: `train.py:41`; with the folder for common file names: `model/__init__.py:3`.
pub(crate) fn place(file: &str, line: Option<u32>) -> String {
    let name = file_name(file);
    let name = match file[..file.len() - name.len()].trim_end_matches('/') {
        folder if name.starts_with("__") && !folder.is_empty() => {
            format!("{}/{name}", file_name(folder))
        }
        _ => name.to_owned(),
    };
    match line {
        Some(line) => format!("{name}:{line}"),
        None => name,
    }
}

/// A Python line in lists of functions: `training_step (train.py:41)`.
pub(crate) fn with_place(function: &str, file: Option<&str>, line: Option<u32>) -> String {
    match file {
        Some(file) => format!("{function} ({})", place(file, line)),
        None => function.to_owned(),
    }
}

/// A frame in lists of functions; of Python, with file and line.
pub(crate) fn text(frame: &Frame) -> String {
    match frame.language.is_python() {
        true => with_place(&frame.function, frame.file.as_deref(), frame.line),
        false => frame.function.clone(),
    }
}

/// The Python frames that identify a call site: the user's lines and markers; without user lines,
/// all.
pub(crate) fn telling(frames: &[Frame]) -> impl Iterator<Item = &Frame> {
    let has_user = frames
        .iter()
        .any(|frame| FrameOrigin::of(frame) == FrameOrigin::User);
    frames
        .iter()
        .filter(move |frame| match FrameOrigin::of(frame) {
            FrameOrigin::User | FrameOrigin::Marker => true,
            FrameOrigin::Library(_) => !has_user,
            FrameOrigin::Native => false,
        })
}

/// Identity of a Python line: function, file and line.
type Line = (String, Option<String>, Option<u32>);

/// Numbers Python lines, so that stacks are quickly compared.
#[derive(Debug, Default)]
pub(crate) struct PythonLines {
    numbers: HashMap<Line, u32>,
}

/// A line by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberedLine {
    number: u32,
    is_user: bool,
    is_marker: bool,
}

impl PythonLines {
    /// Number of a frame; `None` if it is not a Python frame.
    pub(crate) fn number(&mut self, frame: &Frame) -> Option<NumberedLine> {
        let whose = FrameOrigin::of(frame);
        if whose == FrameOrigin::Native {
            return None;
        }
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let line = (frame.function.clone(), frame.file.clone(), frame.line);
        Some(NumberedLine {
            number: *self.numbers.entry(line).or_insert(next),
            is_user: whose == FrameOrigin::User,
            is_marker: whose == FrameOrigin::Marker,
        })
    }
}

/// Key that the stacks of one call site have in common; `None` without Python frames.
pub(crate) fn key(lines: &[NumberedLine]) -> Option<Vec<u32>> {
    let has_user = lines.iter().any(|line| line.is_user);
    let counts = |line: &&NumberedLine| !has_user || line.is_user || line.is_marker;
    let key: Vec<_> = lines
        .iter()
        .filter(counts)
        .map(|line| line.number)
        .collect();
    (!key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_model::stack::{Location, bare_frame};

    fn line(function: &str, file: Option<&str>) -> Frame {
        Frame {
            function: function.to_owned(),
            file: file.map(str::to_owned),
            line: file.map(|_| 3),
            module: String::new(),
            language: Language::Python,
            ..bare_frame(&Location::python(0))
        }
    }

    fn native(function: &str, module: &str) -> Frame {
        Frame {
            function: function.to_owned(),
            module: module.to_owned(),
            ..bare_frame(&Location::python(0))
        }
    }

    const USER: Option<&str> = Some("/home/ada/train.py");
    const LIBRARY: Option<&str> = Some("/v/site-packages/torch/nn/x.py");

    #[test]
    fn user_lines_identify_a_call_site_or_else_all_lines() {
        let mut lines = PythonLines::default();
        let mut key_of = |frames: &[Frame]| {
            let numbered: Vec<_> = frames.iter().filter_map(|f| lines.number(f)).collect();
            key(&numbered)
        };
        let [step, main] = ["step", "<module>"].map(|function| line(function, USER));
        let [linear, conv] = ["Linear.forward", "Conv.forward"].map(|name| line(name, LIBRARY));
        let cut = line("[cut: 128 Python frames]", None);
        let native = native("_PyEval_EvalFrameDefault", "/usr/bin/python3");
        let user = key_of(&[linear.clone(), step.clone(), native.clone(), main.clone()]);
        assert_eq!(
            user,
            key_of(&[conv.clone(), native.clone(), step.clone(), main.clone()])
        );
        assert_ne!(user, key_of(&[main, step.clone()]), "the order counts");
        assert_ne!(key_of(&[step.clone(), cut.clone()]), key_of(&[step]));
        // The missing frames may have been the user's.
        let cut = [&linear, &conv].map(|one| key_of(&[one.clone(), cut.clone()]));
        assert_ne!(cut[0], cut[1]);
        assert_ne!(key_of(&[linear]), key_of(&[conv]));
        assert_eq!(key_of(&[native]), None);
    }

    #[test]
    fn the_context_is_the_native_function_called_by_python() {
        let context = |inner: &[(&str, &str)]| {
            let inner = inner
                .iter()
                .map(|(function, module)| native(function, module));
            let frames: Vec<_> = inner
                .chain([line("step", USER), native("outer", "/x.so")])
                .collect();
            let context = Folded::of(&frames).and_then(|folded| folded.context);
            context.map(|frame| frame.function)
        };
        let cuda = ("cudaMalloc", "/libcudart.so.12");
        let allocator = ("c10::cuda::malloc()", "/v/libc10_cuda.so");
        let ffi = ("ffi_call", "/usr/lib/libffi.so.8");
        let mul = ("at::_ops::mul_Tensor", "/v/libtorch_cuda.so");
        let eval = ("_PyEval_EvalFrameDefault", "/usr/bin/python3");
        assert_eq!(
            context(&[cuda, allocator, ffi, mul, eval]).as_deref(),
            Some("at::_ops::mul_Tensor")
        );
        assert_eq!(context(&[cuda, ffi, eval]).as_deref(), Some("ffi_call"));
        assert_eq!(context(&[cuda, allocator]), None);
        assert!(Folded::of(&[native("f", "/x.so")]).is_none());
    }
}
