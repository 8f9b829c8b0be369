//! A synthetic run of a Python program: `PyTorch` stacks, and deep, truncated and hostile ones.

use std::path::Path;

use zerocopy::IntoBytes;

use crate::scene::SceneFrame::{self, Line, Marker, Native, Perf};
use crate::scene::{
    MEMORY, MIB, PID, SECOND, allocate, begin, call, frames, identity, know, mark, stack, usage,
};

const TORCH: &str = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
const BINDINGS: &str = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_python.so";
const C10: &str = "/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so";
const PYTHON: &str = "/usr/bin/python3.12";
const CUDART: &str = "/usr/lib/libcudart.so.12";

const EVAL: SceneFrame<'_> = Native("_PyEval_EvalFrameDefault", PYTHON);
const CUDA_MALLOC: SceneFrame<'_> = Native("cudaMalloc", CUDART);
/// The outermost frames of every stack of the main thread.
const START: [SceneFrame<'_>; 3] = [
    Native("main", PYTHON),
    Native("__libc_start_call_main", "/usr/lib/libc.so.6"),
    Native("_start", PYTHON),
];
const STEP: SceneFrame<'_> = Line(
    "training_step",
    "/home/ada/train.py",
    41,
    "loss = model(x, labels=x).loss",
);
const MODULE: SceneFrame<'_> = Line("<module>", "/home/ada/train.py", 63, "training_step(batch)");

/// Lines of installed packages: `transformers 14, torch.nn 9, torch.autograd 8`, nested as calls
/// are.
fn libraries() -> Vec<SceneFrame<'static>> {
    let line = |index: u32| {
        let (function, file) = match index % 31 {
            0..8 => ("Function.apply", "torch/autograd/function.py"),
            8..17 => ("Module._call_impl", "torch/nn/modules/module.py"),
            _ => (
                "GPT2Model.forward",
                "transformers/models/gpt2/modeling_gpt2.py",
            ),
        };
        let file = format!("/venv/lib/python3.12/site-packages/{file}");
        Line(function, file.leak(), 100 + index, "return self._apply(fn)")
    };
    (0..31).flat_map(|index| [line(index), EVAL]).collect()
}

/// `PyTorch`'s stack of a multiplication, called through this function of the bindings.
fn multiplication(
    allocates: SceneFrame<'static>,
    bindings: &'static str,
) -> Vec<SceneFrame<'static>> {
    let mut frames = vec![
        allocates,
        Native(
            "c10::cuda::CUDACachingAllocator::Native::malloc(unsigned long)",
            C10,
        ),
        Native(
            "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)",
            TORCH,
        ),
        Native(bindings, BINDINGS),
        EVAL,
    ];
    frames.extend(libraries());
    frames.extend([STEP, EVAL, MODULE]);
    frames.extend(START);
    frames
}

/// A Python program: two live reports and one after its exit.
pub(crate) fn record(path: &Path) {
    let mut recorder = begin(path, MEMORY);
    let who = identity("ada", "/venv/bin/python3 /home/ada/train.py", 0);
    know(&mut recorder, PID, "python3", who);
    let multiplied = [
        ("cudaMalloc", "THPVariable_mul", 512),
        ("cudaMalloc", "torch::autograd::THPVariable_mul_", 256),
        ("cudaMallocAsync", "wrap_mul", 32),
        ("cudaHostAlloc", "THPVariable_mul", 64),
    ];
    let multiplied = multiplied.map(|(function, bindings, mib)| {
        let frames = multiplication(Native(function, CUDART), bindings);
        (function, frames, true, mib)
    });
    let others = (0..).zip(others()).map(|(index, (frames, is_complete))| {
        ("cudaMalloc", frames, is_complete, 150 - 10 * index)
    });
    for (id, (function, of_stack, is_complete, mib)) in
        (1..).zip(multiplied.into_iter().chain(others))
    {
        frames(&mut recorder, (PID, id), &of_stack);
        stack(&mut recorder, (PID, id), &of_stack, is_complete);
        let at_ns = SECOND + id * 1_000_000;
        allocate(&mut recorder, PID, function, id, mib * MIB, at_ns);
    }
    recorder.note(mark(32, false, false, usage(1640 * MIB)));
    // The second variant is freed, and the first grows.
    let second = ((SECOND + 2_000_000) << 12) | 2 << 40;
    recorder.record(call("cudaFree", second, 0, 2 * SECOND).as_bytes());
    let at_ns = 2 * SECOND + 1_000_000;
    allocate(&mut recorder, PID, "cudaMalloc", 1, 8 * MIB, at_ns);
    for (second, is_final) in [(34, false), (36, true)] {
        recorder.note(mark(second, false, is_final, usage(1392 * MIB)));
    }
    recorder.finish();
}

/// Stacks of all other sorts, and whether they are complete to the thread's start.
fn others() -> Vec<(Vec<SceneFrame<'static>>, bool)> {
    let native = |function| Native(function, TORCH);
    let mut library = vec![CUDA_MALLOC, native("at::_ops::zeros::call(int)"), EVAL];
    library.extend(libraries());
    let cublas = Native("cublasCreate_v2", "/usr/lib/libcublas.so.12");
    let mut cut = vec![CUDA_MALLOC, cublas, EVAL, STEP];
    cut.extend([Marker("[unreadable Python frame]"); 2]);
    cut.push(Marker("[cut: 128 Python frames]"));
    let name = "\u{1b}]0;x\u{7};\nname 7";
    let hostile = vec![
        CUDA_MALLOC,
        native("evil\u{1b}[2J;\nname(int)"),
        Line(name, "/home/ada/a\tb;c d.py", 9, "x = '\u{1b}[31m'\t# tab"),
        Line("f\u{202e}g", "/home/ada/x.py", u32::MAX, ""),
        MODULE,
    ];
    vec![
        (deep(), true),
        (library, true),
        (cut, false),
        (hostile, true),
        (ctypes(), true),
        (perf(), true),
        (thread(), true),
    ]
}

/// A recursion of 40 lines of the user's code.
fn deep() -> Vec<SceneFrame<'static>> {
    let native = |function| Native(function, TORCH);
    let mut deep = vec![
        CUDA_MALLOC,
        native("at::native::empty_cuda(long)"),
        native("at::_ops::cat::call(int)"),
        EVAL,
    ];
    for line in 0..40_u32 {
        let function = match line {
            0..38 => "Tree.grow.<locals>.visit",
            _ => "build",
        };
        let source = "self.visit(child, depth + 1)";
        deep.push(Line(function, "/home/ada/tree.py", 10 + line, source));
        deep.extend((line % 9 == 8).then_some(EVAL));
    }
    deep.extend(libraries().into_iter().take(6));
    deep.extend(START);
    deep
}

const FFI: SceneFrame<'_> = Native("ffi_call", "/usr/lib/libffi.so.8");

fn ctypes() -> Vec<SceneFrame<'static>> {
    let module = "/usr/lib/python3.12/lib-dynload/_ctypes.cpython-312-x86_64-linux-gnu.so";
    let source = "lib.cudaMalloc(byref(p), n)";
    vec![
        CUDA_MALLOC,
        FFI,
        Native("_call_function_pointer", module),
        EVAL,
        Line("Raw.grab", "/home/ada/raw/__init__.py", 7, source),
        MODULE,
        START[0],
        START[1],
    ]
}

fn perf() -> Vec<SceneFrame<'static>> {
    vec![
        CUDA_MALLOC,
        FFI,
        EVAL,
        Perf("Cache.fill", "/home/ada/cache.py"),
        EVAL,
        Perf("_run_code", "<frozen runpy>"),
    ]
}

/// A library's thread without Python.
fn thread() -> Vec<SceneFrame<'static>> {
    let apply = |number: u32| {
        let name = format!("torch::autograd::Node{number}::apply()");
        Native(name.leak(), TORCH)
    };
    let mut thread = vec![CUDA_MALLOC];
    thread.extend((0..30).map(apply));
    thread.push(Native("start_thread", "/usr/lib/libc.so.6"));
    thread
}
