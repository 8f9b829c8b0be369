//! A synthetic run of a Python program: `PyTorch` stacks, and deep, truncated and hostile ones.

use std::path::Path;

use gpuprobe_model::stack::{CallStack, Frame, Language, Location, ModuleId, bare_frame};
use gpuprobe_recording::Player;
use gpuprobe_recording::log::LogNote;

use crate::replay::PID;
use crate::scene::{self, MEMORY, allocate, begin, know, mark, usage};

pub(super) const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const TORCH: &str = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
const BINDINGS: &str = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_python.so";
const C10: &str = "/venv/lib/python3.12/site-packages/torch/lib/libc10_cuda.so";
const PYTHON: &str = "/usr/bin/python3.12";
const CUDART: &str = "/usr/lib/libcudart.so.12";
/// Code generated at run time has its address.
const JIT: u64 = 0x7f00_0000_1000;

/// One frame of a stack.
#[derive(Clone, Copy)]
pub(super) enum SceneFrame<'a> {
    /// Native code: function and file.
    Native(&'a str, &'a str),
    /// A line of Python: function, file, line and text.
    Line(&'a str, &'a str, u32, &'a str),
    /// A marker of missing frames.
    Marker(&'a str),
    /// As `python -X perf` names it: function and file.
    Perf(&'a str, &'a str),
}

/// Frame ids, and a recorder that gets the frames.
pub(super) struct PythonScene {
    pub(super) recorder: Player,
    places: u32,
    stacks: u64,
}

impl PythonScene {
    pub(super) fn new(path: &Path) -> Self {
        let mut recorder = begin(path, MEMORY);
        let who = scene::identity("ada", "/venv/bin/python3 /home/ada/train.py", 0);
        know(&mut recorder, PID, "python3", who);
        Self {
            recorder,
            places: 0,
            stacks: 0,
        }
    }

    fn learn(&mut self, at: SceneFrame<'_>, is_innermost: bool) -> Location {
        self.places += 1;
        let number = self.places;
        let native = Location {
            address: 0x40_0000 + u64::from(number) * 16,
            module: Some(ModuleId(number)),
            offset: u64::from(number) * 16,
        };
        let (location, frame) = match at {
            SceneFrame::Native(function, module) => (native, named(&native, function, module)),
            SceneFrame::Line(function, file, line, source) => {
                let location = Location::python(number);
                let frame = Frame {
                    file: Some(file.to_owned()),
                    line: Some(line),
                    source: Some(source.to_owned()).filter(|source| !source.is_empty()),
                    language: Language::Python,
                    ..named(&location, function, "")
                };
                (location, frame)
            }
            SceneFrame::Marker(text) => {
                let location = Location::python(number);
                let frame = Frame {
                    language: Language::Python,
                    ..named(&location, text, "")
                };
                (location, frame)
            }
            SceneFrame::Perf(function, file) => {
                let (module, address) = (None, JIT + u64::from(number) * 16);
                let location = Location {
                    address,
                    module,
                    offset: 0,
                };
                let frame = Frame {
                    file: Some(file.to_owned()),
                    language: Language::Python,
                    ..named(&location, function, "[jit]")
                };
                (location, frame)
            }
        };
        self.recorder
            .note(LogNote::Frames(PID, location, is_innermost, vec![frame]));
        location
    }

    /// Records a stack, innermost first; returns its id.
    pub(super) fn stack(&mut self, frames: &[SceneFrame<'_>], is_complete: bool) -> u64 {
        let each = frames.iter().enumerate();
        let locations = each
            .map(|(index, at)| self.learn(*at, index == 0))
            .collect();
        self.stacks += 1;
        let stack = CallStack {
            locations,
            is_complete,
        };
        self.recorder.note(LogNote::Stack(PID, self.stacks, stack));
        self.stacks
    }

    pub(super) fn allocate(&mut self, symbol: &str, stack: u64, bytes: u64, at_ns: u64) {
        allocate(&mut self.recorder, PID, symbol, stack, bytes, at_ns);
    }
}

fn named(location: &Location, function: &str, module: &str) -> Frame {
    Frame {
        function: function.to_owned(),
        module: module.to_owned(),
        ..bare_frame(location)
    }
}

const EVAL: SceneFrame<'_> = SceneFrame::Native("_PyEval_EvalFrameDefault", PYTHON);
const CUDA_MALLOC: SceneFrame<'_> = SceneFrame::Native("cudaMalloc", CUDART);
/// The outermost frames of every stack of the main thread.
const START: [SceneFrame<'_>; 3] = [
    SceneFrame::Native("main", PYTHON),
    SceneFrame::Native("__libc_start_call_main", "/usr/lib/libc.so.6"),
    SceneFrame::Native("_start", PYTHON),
];
pub(super) const STEP: SceneFrame<'_> = SceneFrame::Line(
    "training_step",
    "/home/ada/train.py",
    41,
    "loss = model(x, labels=x).loss",
);
const MODULE: SceneFrame<'_> =
    SceneFrame::Line("<module>", "/home/ada/train.py", 63, "training_step(batch)");

/// Lines of installed packages: `transformers 14, torch.nn 9, torch.autograd 8`, nested as calls
/// are.
pub(super) fn libraries() -> Vec<SceneFrame<'static>> {
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
        SceneFrame::Line(function, file.leak(), 100 + index, "return self._apply(fn)")
    };
    (0..31).flat_map(|index| [line(index), EVAL]).collect()
}

/// `PyTorch`'s stack of a multiplication, called through this function of the bindings.
pub(super) fn multiplication(
    allocates: SceneFrame<'static>,
    bindings: &'static str,
) -> Vec<SceneFrame<'static>> {
    let mut frames = vec![
        allocates,
        SceneFrame::Native(
            "c10::cuda::CUDACachingAllocator::Native::malloc(unsigned long)",
            C10,
        ),
        SceneFrame::Native(
            "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)",
            TORCH,
        ),
        SceneFrame::Native(bindings, BINDINGS),
        EVAL,
    ];
    frames.extend(libraries());
    frames.extend([STEP, EVAL, MODULE]);
    frames.extend(START);
    frames
}

/// A Python program: two live reports and one after its exit.
pub(crate) fn record(path: &Path) {
    let mut scene = PythonScene::new(path);
    let variants = [
        "THPVariable_mul",
        "torch::autograd::THPVariable_mul_",
        "wrap_mul",
    ];
    for (index, (bindings, mib)) in (0..).zip(variants.into_iter().zip([512, 256, 32])) {
        let function = if index == 2 {
            "cudaMallocAsync"
        } else {
            "cudaMalloc"
        };
        let allocates = SceneFrame::Native(function, CUDART);
        let number = scene.stack(&multiplication(allocates, bindings), true);
        scene.allocate(function, number, mib * MIB, SECOND + index * 1_000_000);
    }
    let pinned = SceneFrame::Native("cudaHostAlloc", CUDART);
    let number = scene.stack(&multiplication(pinned, "THPVariable_mul"), true);
    scene.allocate("cudaHostAlloc", number, 64 * MIB, SECOND + 4_000_000);
    for (index, (frames, is_complete)) in (5..).zip(others()) {
        let number = scene.stack(&frames, is_complete);
        scene.allocate(
            "cudaMalloc",
            number,
            (200 - index * 10) * MIB,
            SECOND + index * 1_000_000,
        );
    }
    scene
        .recorder
        .note(mark(32, false, false, usage(1640 * MIB)));
    // The second variant is freed, and the first grows.
    let second = ((SECOND + 1_000_000) << 12) | 2 << 40;
    let free = crate::replay::call("cudaFree", second, 0, 2 * SECOND);
    scene.recorder.record(zerocopy::IntoBytes::as_bytes(&free));
    scene.allocate("cudaMalloc", 1, 8 * MIB, 2 * SECOND + 1_000_000);
    for (second, is_final) in [(34, false), (36, true)] {
        scene
            .recorder
            .note(mark(second, false, is_final, usage(1392 * MIB)));
    }
    scene.recorder.finish();
}

/// Stacks of all other sorts, and whether they are complete to the thread's start.
fn others() -> Vec<(Vec<SceneFrame<'static>>, bool)> {
    let native = |function| SceneFrame::Native(function, TORCH);
    let mut library = vec![CUDA_MALLOC, native("at::_ops::zeros::call(int)"), EVAL];
    library.extend(libraries());
    let cublas = SceneFrame::Native("cublasCreate_v2", "/usr/lib/libcublas.so.12");
    let mut cut = vec![CUDA_MALLOC, cublas, EVAL, STEP];
    cut.extend([SceneFrame::Marker("[unreadable Python frame]"); 2]);
    cut.push(SceneFrame::Marker("[cut: 128 Python frames]"));
    let name = "\u{1b}]0;x\u{7};\nname 7";
    let hostile = vec![
        CUDA_MALLOC,
        native("evil\u{1b}[2J;\nname(int)"),
        SceneFrame::Line(name, "/home/ada/a\tb;c d.py", 9, "x = '\u{1b}[31m'\t# tab"),
        SceneFrame::Line("f\u{202e}g", "/home/ada/x.py", u32::MAX, ""),
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
    let native = |function| SceneFrame::Native(function, TORCH);
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
        deep.push(SceneFrame::Line(
            function,
            "/home/ada/tree.py",
            10 + line,
            source,
        ));
        deep.extend((line % 9 == 8).then_some(EVAL));
    }
    deep.extend(libraries().into_iter().take(6));
    deep.extend(START);
    deep
}

const FFI: SceneFrame<'_> = SceneFrame::Native("ffi_call", "/usr/lib/libffi.so.8");

fn ctypes() -> Vec<SceneFrame<'static>> {
    let module = "/usr/lib/python3.12/lib-dynload/_ctypes.cpython-312-x86_64-linux-gnu.so";
    let source = "lib.cudaMalloc(byref(p), n)";
    vec![
        CUDA_MALLOC,
        FFI,
        SceneFrame::Native("_call_function_pointer", module),
        EVAL,
        SceneFrame::Line("Raw.grab", "/home/ada/raw/__init__.py", 7, source),
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
        SceneFrame::Perf("Cache.fill", "/home/ada/cache.py"),
        EVAL,
        SceneFrame::Perf("_run_code", "<frozen runpy>"),
    ]
}

/// A library's thread without Python.
fn thread() -> Vec<SceneFrame<'static>> {
    let apply = |number: u32| {
        let name = format!("torch::autograd::Node{number}::apply()");
        SceneFrame::Native(name.leak(), TORCH)
    };
    let mut thread = vec![CUDA_MALLOC];
    thread.extend((0..30).map(apply));
    thread.push(SceneFrame::Native("start_thread", "/usr/lib/libc.so.6"));
    thread
}
