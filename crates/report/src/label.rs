//! What a call site is called: the line or function that people know it by.

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
    let is_told = |frame: &&Frame| !is_inner(frame) && !is_interpreters(frame);
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpuprobe_model::stack::Language;

    fn frame(function: &str, module: &str, file: Option<(&str, u32)>) -> Frame {
        Frame {
            function: function.into(),
            file: file.map(|(file, _)| file.into()),
            line: file.map(|(_, line)| line),
            module: module.into(),
            address: 0,
            source: None,
            language: Language::Native,
            inlined: false,
        }
    }

    #[test]
    fn the_first_frame_that_is_the_users() {
        let app = "/srv/app";
        let stack = [
            frame("cudaMalloc", "/cuda/libcudart.so.12", None),
            frame("rmm::mr::allocate(int)", "/x/librmm.so", None),
            frame("grow", app, Some(("/src/pool.c", 58))),
            frame("main", app, Some(("/src/main.c", 7))),
            frame("__libc_start_main", "/lib/libc.so.6", None),
        ];
        assert_eq!(label(&stack).as_deref(), Some("pool.c:58 grow"));
        assert_eq!(via(&stack, "cudaMalloc"), "cudaMalloc");
        assert_eq!(label(&stack[..2]).as_deref(), Some("librmm: allocate"));
        assert_eq!(label(&[]), None);
        let bare = [frame("app+0x1a3", app, None)];
        assert_eq!(label(&bare).as_deref(), Some("app+0x1a3"));
        let library = [frame("cublasCreate_v2", "/x/libcublas.so.12", None)];
        assert_eq!(
            label(&library).as_deref(),
            Some("libcublas: cublasCreate_v2")
        );
    }

    #[test]
    fn in_a_framework_the_line_of_python_counts() {
        let mut line = frame("step", "train.py", Some(("/home/ada/train.py", 88)));
        line.language = Language::Python;
        let mut library = frame(
            "forward",
            "x.py",
            Some(("/v/site-packages/torch/nn/x.py", 9)),
        );
        library.language = Language::Python;
        let torch = "/v/torch/lib/libtorch_cuda.so";
        let stack = [
            frame("c10::cuda::malloc()", "/v/torch/lib/libc10_cuda.so", None),
            frame("at::native::add(at::Tensor)", torch, None),
            frame("at::native::zeros_like(at::Tensor)", torch, None),
            library,
            line,
        ];
        assert_eq!(label(&stack).as_deref(), Some("train.py:88 step"));
        assert_eq!(via(&stack, "cudaMalloc"), "zeros_like > cudaMalloc");
        // Whatever else was called: a library, an extension of the user's, or nothing by name.
        for (function, module, file) in [
            ("cublasCreate_v2", "/x/libcublas.so.12", None),
            ("grow", "/srv/_pool.so", Some(("/srv/pool.cc", 58))),
            ("ffi_call", "/usr/lib/libffi.so.8", None),
            ("__pyx_f_4core", "/v/site-packages/cupy/_core/core.so", None),
            (
                "xla::Run()",
                "/v/site-packages/jaxlib/xla_extension.so",
                None,
            ),
        ] {
            let called = [frame(function, module, file), stack[4].clone()];
            assert_eq!(label(&called).as_deref(), Some("train.py:88 step"));
        }
        // Without a line of the user's, a library that is no framework's says more than who called it.
        let library = &stack[3];
        let cublas = frame("cublasCreate_v2", "/x/libcublas.so.12", None);
        let called = [cublas, library.clone()];
        assert_eq!(
            label(&called).as_deref(),
            Some("libcublas: cublasCreate_v2")
        );
        assert_eq!(label(&stack[..4]).as_deref(), Some("x.py:9 forward"));
    }

    #[test]
    fn lines_of_files_with_one_name_are_told_apart() {
        let line = |file: &str| Frame {
            language: Language::Python,
            ..frame("<lambda>", "", Some((file, 3)))
        };
        let stacks = ["/a/x.py", "/b/x.py"].map(|file| [line(file)]);
        let sites: Vec<(&[Frame], &str)> = stacks.iter().map(|s| (&s[..], "f")).collect();
        assert_eq!(
            labels(&sites),
            [
                "x.py:3 <lambda> > f in /a/x.py",
                "x.py:3 <lambda> > f in /b/x.py"
            ]
        );
        let package = [line("/srv/model/__init__.py")];
        assert_eq!(
            label(&package).as_deref(),
            Some("model/__init__.py:3 <lambda>")
        );
    }

    /// As `python -X perf` has it, which tells no lines.
    #[test]
    fn functions_of_python_come_before_those_that_run_them() {
        let python = |name: &str| {
            let mut frame = frame(name, "[jit]", Some(("/srv/train.py", 0)));
            (frame.line, frame.language) = (None, Language::Python);
            frame
        };
        let native = |name: &str, file: &str| frame(name, file, None);
        let stack = |eval: &str, last: &str| {
            [
                native("ffi_call", "/usr/lib/libffi.so.8"),
                native("PyCFuncPtr_call", "/x/_ctypes.cpython-312.so"),
                native(eval, "/usr/bin/python3.12"),
                python("allocate"),
                native("PyObject_Call", "/usr/bin/python3.12"),
                python(last),
            ]
        };
        let stacks = [("eval_1", "step"), ("eval_1", "load"), ("eval_2", "load")];
        let stacks = stacks.map(|(eval, last)| stack(eval, last));
        assert_eq!(via(&stacks[0], "cudaMalloc"), "cudaMalloc");
        let sites = [0, 1].map(|index| (&stacks[index][..], "cudaMalloc"));
        let expected = [
            "train.py allocate < train.py step",
            "train.py allocate < train.py load",
        ];
        assert_eq!(labels(&sites), expected);
        let sites = [1, 2].map(|index| (&stacks[index][..], "cudaMalloc"));
        let expected =
            ["1", "2"].map(|eval| format!("train.py allocate > python3.12: eval_{eval}"));
        assert_eq!(labels(&sites), expected);
    }

    #[test]
    fn labels_differ_where_stacks_do() {
        let app = "/srv/app";
        let alloc = || frame("pool_allocate", app, Some(("a.c", 1)));
        let one = [
            alloc(),
            frame("load", app, Some(("b.c", 2))),
            frame("main", app, None),
        ];
        let two = [
            alloc(),
            frame("step", app, Some(("b.c", 9))),
            frame("main", app, None),
        ];
        let three = [
            alloc(),
            frame("step", app, Some(("b.c", 9))),
            frame("tune", app, None),
        ];
        let sites: [(&[Frame], &str); 5] = [
            (&one, "cudaMalloc"),
            (&two, "cudaMalloc"),
            (&three, "cudaMalloc"),
            (&one, "cuMemCreate"),
            (&[], "cudaMalloc"),
        ];
        let labels = labels(&sites);
        let different: std::collections::HashSet<_> = labels.iter().collect();
        assert_eq!(different.len(), labels.len(), "{labels:?}");
        assert_eq!(labels[2], "a.c:1 pool_allocate < app: tune");
        assert_eq!(labels[4], "cudaMalloc");
        // Two places in one function, without lines.
        let mut other = frame("main", app, None);
        other.address = 0x40;
        let places = [frame("main", app, None), other];
        let sites: Vec<(&[Frame], &str)> = places
            .iter()
            .map(|p| (std::slice::from_ref(p), "f"))
            .collect();
        assert_eq!(
            super::labels(&sites),
            ["app: main > f @0x0", "app: main > f @0x40"]
        );
    }
}
