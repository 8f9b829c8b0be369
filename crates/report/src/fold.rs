//! Folding of call stacks in Python programs: the user's own lines, and a summary of the rest.

use gpuprobe_model::stack::{Frame, Language};
use indexmap::IndexMap;

pub use gpuprobe_stacks::allocators::{self, is_inner};
pub use gpuprobe_stacks::cuda::file_name;
use gpuprobe_stacks::cuda::is_own;
use gpuprobe_stacks::python::origin::{FileOrigin, is_interpreter};

/// Library lines shown if the stack has no user lines.
const LIBRARY_LINES: usize = 2;

/// Owner of a frame, as far as Python is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameOrigin {
    /// A line of the user's own Python.
    User,
    /// A line of an installed package or of the standard library.
    Library,
    /// A marker for missing Python frames.
    Marker,
    /// Native code, including the interpreter's.
    Native,
}

impl FrameOrigin {
    /// Classifies `frame` by its language and file.
    pub fn of(frame: &Frame) -> Self {
        match (frame.language, &frame.file) {
            (Language::Native, _) => Self::Native,
            (Language::Python, None) => Self::Marker,
            (Language::Python, Some(file)) => match FileOrigin::of(file) {
                FileOrigin::User => Self::User,
                _ => Self::Library,
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
    /// Number of the frames of libraries.
    pub fn library_frames(&self) -> u64 {
        self.libraries.iter().map(|(_, count)| count).sum()
    }

    /// Folds a stack; `None` if it has no Python frame.
    pub fn of(frames: &[Frame]) -> Option<Self> {
        let first = frames.iter().position(is_python)?;
        let of = |origin| {
            let all = frames.iter();
            all.filter(move |frame| FrameOrigin::of(frame) == origin)
        };
        let mut lines: Vec<_> = of(FrameOrigin::User).cloned().collect();
        let mut libraries: Vec<_> = of(FrameOrigin::Library).collect();
        if lines.is_empty() {
            let innermost = libraries.drain(..libraries.len().min(LIBRARY_LINES));
            lines = innermost.cloned().collect();
        }
        let package =
            |frame: &Frame| FileOrigin::of(frame.file.as_deref().unwrap_or_default()).to_string();
        let mut libraries = counts(libraries.into_iter().map(package));
        libraries.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        Some(Self {
            lines,
            libraries,
            markers: counts(of(FrameOrigin::Marker).map(|frame| frame.function.clone())),
            context: context(&frames[..first]).cloned(),
        })
    }
}

/// Number of occurrences of each text, in order of first occurrence.
fn counts(texts: impl Iterator<Item = String>) -> Vec<(String, u64)> {
    let mut counts: IndexMap<String, u64> = IndexMap::default();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    counts.into_iter().collect()
}

/// The most informative of the native frames called by the innermost Python line. Frames of the
/// interpreter are used only if there are no others, as for ctypes.
fn context(called: &[Frame]) -> Option<&Frame> {
    let mut outer = called.iter().filter(|frame| !is_inner(frame));
    let mut others = outer.clone();
    let other = others.find(|frame| !is_interpreters(frame));
    other.or_else(|| outer.next())
}

/// The frames down to the start of the program or thread.
pub fn down_to_start(frames: &[Frame]) -> &[Frame] {
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
pub fn place(file: &str, line: Option<u32>) -> String {
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

/// A frame in lists of functions; of Python, with file and line: `training_step (train.py:41)`.
pub fn text(frame: &Frame) -> String {
    match frame.file.as_ref().filter(|_| is_python(frame)) {
        Some(file) => format!("{} ({})", frame.function, place(file, frame.line)),
        None => frame.function.clone(),
    }
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
