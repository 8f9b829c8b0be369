//! Labels of call sites.

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
fn the_label_is_the_first_user_frame() {
    let app = "/srv/app";
    let stack = [
        frame("cudaMalloc", "/cuda/libcudart.so.12", None),
        frame("rmm::mr::allocate(int)", "/x/librmm.so", None),
        frame("grow", app, Some(("/src/pool.c", 58))),
        frame("main", app, Some(("/src/main.c", 7))),
        frame("__libc_start_main", "/lib/libc.so.6", None),
    ];
    assert_eq!(
        label(&stack).as_deref(),
        Some("main.c:7 main > pool.c:58 grow")
    );
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
fn frames_of_libraries_without_lines_are_behind_the_programs() {
    let cufft = "/x/libcufft.so.12.0.0.61";
    let bare = || frame("libcufft.so.12.0.0.61+0x31adcb", cufft, None);
    let plan = frame("cufftPlan1d", cufft, None);
    let line = Some(("/src/plans.cu", 23));
    let session = |line| frame("open_session", "/srv/plans", line);
    let main = frame("main", "/srv/plans", line);
    let start = frame("__libc_start_main", "/lib/libc.so.6", None);
    let thread = frame("execute_native_thread_routine", "/lib/libstdc++.so.6", None);
    let stack = |frames: &[&Frame]| frames.iter().copied().cloned().collect::<Vec<_>>();
    let cuda = frame("cuMemAlloc_v2", "/x/libcuda.so.1", None);
    let user = session(line);
    for (called, expected) in [
        (
            vec![&plan, &user, &main],
            "plans.cu:23 main > plans.cu:23 open_session via libcufft",
        ),
        (
            vec![&user, &main],
            "plans.cu:23 main > plans.cu:23 open_session via libcufft",
        ),
        (vec![&plan, &session(None), &start], "libcufft: cufftPlan1d"),
        (
            vec![&session(None), &start],
            "plans: open_session via libcufft",
        ),
        (vec![&thread, &start], "libcufft.so.12.0.0.61+0x31adcb"),
    ] {
        let stack = stack(&[&[&cuda, &bare(), &bare()], &called[..]].concat());
        assert_eq!(label(&stack).as_deref(), Some(expected));
    }
    let at = |offset: &str| frame(&format!("libcufft.so.12.0.0.61+{offset}"), cufft, None);
    let stacks = [
        ("0x31adcb", "0x1"),
        ("0x31a27c", "0x2"),
        ("0x31a27c", "0x3"),
    ]
    .map(|(outer, inner)| stack(&[&cuda, &at(inner), &at(outer), &plan, &user, &main]));
    let line = "plans.cu:23 main > plans.cu:23 open_session via libcufft";
    assert_eq!(
        labels(stacks.iter().map(|stack| (&**stack, "cuMemAlloc_v2"))),
        ["+0x31adcb", "+0x2", "+0x3"].map(|offset| line.to_owned() + offset)
    );
    let planned = stack(&[&cuda, &bare(), &plan, &user, &main]);
    assert_eq!(
        via(&planned, "cuMemAlloc_v2"),
        "cufftPlan1d > cuMemAlloc_v2"
    );
    assert_eq!(lines(&planned).next(), Some(("/src/plans.cu", 23)));
    let python = Frame {
        language: Language::Python,
        ..frame("plan", "", Some(("/v/site-packages/x/fft.py", 9)))
    };
    let called = stack(&[&cuda, &bare(), &python]);
    assert_eq!(label(&called).as_deref(), Some("fft.py:9 plan"));
}

#[test]
fn framework_code_is_labelled_by_its_python_line() {
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
    // Whatever else was called: a library, an extension of the user, or code without symbols.
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
    // Without a user line, a library that is not a framework is more informative than its caller.
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
fn lines_of_files_with_the_same_name_differ() {
    let line = |file: &str| Frame {
        language: Language::Python,
        ..frame("<lambda>", "", Some((file, 3)))
    };
    let stacks = ["/a/x.py", "/b/x.py"].map(|file| [line(file)]);
    let sites: Vec<(&[Frame], &str)> = stacks.iter().map(|s| (&s[..], "f")).collect();
    assert_eq!(
        labels(sites),
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

/// Stacks of `python -X perf`, which have no lines.
#[test]
fn python_functions_come_before_interpreter_functions() {
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
        "train.py step > train.py allocate",
        "train.py load > train.py allocate",
    ];
    assert_eq!(labels(sites), expected);
    let sites = [1, 2].map(|index| (&stacks[index][..], "cudaMalloc"));
    let expected = ["1", "2"]
        .map(|eval| format!("train.py load > train.py allocate > python3.12: eval_{eval}"));
    assert_eq!(labels(sites), expected);
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
    let labels = labels(sites);
    let different: std::collections::HashSet<_> = labels.iter().collect();
    assert_eq!(different.len(), labels.len(), "{labels:?}");
    assert_eq!(
        labels[2],
        "app: tune > ... > b.c:9 step > a.c:1 pool_allocate"
    );
    assert_eq!(labels[4], "cudaMalloc");
    // Two places in one function, without line information.
    let mut other = frame("main", app, None);
    other.address = 0x40;
    let places = [frame("main", app, None), other];
    let sites: Vec<(&[Frame], &str)> = places
        .iter()
        .map(|p| (std::slice::from_ref(p), "f"))
        .collect();
    assert_eq!(
        super::labels(sites),
        ["app: main > f @0x0", "app: main > f @0x40"]
    );
}

#[test]
fn short_labels_have_one_line() {
    for (label, expected) in [
        (
            "a.py:11 <module> > b.py:7 f > a.py:4 malloc",
            "a.py:11 <module> > f > malloc",
        ),
        (
            "a.c:1 main > a.c:2 open via libcufft > cudaMalloc",
            "a.c:1 main > open via libcufft > cudaMalloc",
        ),
        ("app: main > load", "app: main > load"),
        (
            "a.py:3 f > libcublas: create",
            "a.py:3 f > libcublas: create",
        ),
        ("cudaMalloc", "cudaMalloc"),
    ] {
        assert_eq!(shortened(label), expected);
    }
}

#[test]
fn python_names_are_short() {
    for (qualified, expected) in [
        ("Model.__init__.<locals>.<listcomp>", "Model.__init__"),
        ("outer.<locals>.inner", "outer.inner"),
        ("<listcomp>", "<listcomp>"),
        ("<module>", "<module>"),
    ] {
        assert_eq!(python_name(qualified), expected);
    }
}
