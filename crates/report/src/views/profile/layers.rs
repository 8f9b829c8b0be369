//! Layers of software that frames belong to, shown as colours.

use inferno::flamegraph::color::Color;

use gpuprobe_model::stack::{Frame, Language};
use gpuprobe_stacks::cuda::{file_name, is_cuda};
use gpuprobe_stacks::python::origin::is_interpreter;

/// Layer of software that a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CodeLayer {
    /// Lines of Python code.
    Python,
    /// Native code of the Python interpreter.
    Interpreter,
    /// Code that belongs to no other layer.
    Program,
    /// Libraries of frameworks like PyTorch.
    Framework,
    /// CUDA and NVIDIA's libraries.
    Cuda,
}

/// Prefixes of the file names of NVIDIA's libraries.
const NVIDIA: &[&str] = &[
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcufile",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcutensor",
    "libnccl",
    "libnvJitLink",
    "libnvjpeg",
    "libnvrtc",
    "libnvToolsExt",
];

/// Prefixes of the file names of frameworks' libraries.
const FRAMEWORKS: &[&str] = &[
    "_pywrap_tensorflow",
    "libc10",
    "libcudf",
    "libjax",
    "libkokkos",
    "libonnxruntime",
    "libpaddle",
    "librmm",
    "libtensorflow",
    "libtorch",
    "libtriton",
    "libxla",
    "pjrt_c_api",
    "xla_cuda",
    "xla_extension",
];

impl CodeLayer {
    /// The layer of `frame`.
    pub(super) fn of(frame: &Frame) -> Self {
        let file = file_name(&frame.module);
        let begins = |list: &[&str]| list.iter().any(|begin| file.starts_with(begin));
        if frame.language == Language::Python {
            Self::Python
        } else if is_cuda(&frame.function, &frame.module, frame.file.as_deref()) || begins(NVIDIA) {
            Self::Cuda
        } else if begins(FRAMEWORKS) {
            Self::Framework
        } else if is_interpreter(&frame.function, &frame.module) {
            Self::Interpreter
        } else if ["/cupy/", "site-packages/", "dist-packages/"]
            .iter()
            .any(|part| frame.module.contains(part))
        {
            Self::Framework
        } else {
            Self::Program
        }
    }

    /// Its colour and name.
    pub(super) fn legend(self) -> &'static str {
        match self {
            Self::Python => "blue Python",
            Self::Interpreter => "grey the interpreter",
            Self::Program => "orange the program",
            Self::Framework => "green frameworks",
            Self::Cuda => "violet CUDA",
        }
    }

    /// A light colour, so that black text on it is readable in print.
    fn colour(self) -> Color {
        let (r, g, b) = match self {
            Self::Python => (158, 202, 235),
            Self::Interpreter => (214, 218, 222),
            Self::Program => (253, 205, 130),
            Self::Framework => (180, 221, 165),
            Self::Cuda => (214, 190, 228),
        };
        Color { r, g, b }
    }

    /// A shade of the colour that depends on the name, so that neighbours differ.
    pub(super) fn shade(self, name: &str) -> Color {
        const SHADES: u32 = 4;
        const STEP: u8 = 9;
        let sum = name.bytes().fold(0_u32, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        let darker = u8::try_from((sum ^ (sum >> 11)) % SHADES).unwrap_or(0) * STEP;
        let Color { r, g, b } = self.colour();
        Color {
            r: r - darker,
            g: g - darker,
            b: b - darker,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::profile::named_frame;

    #[test]
    fn frames_belong_to_layers() {
        let layer = |function: &str, module: &str, language| {
            CodeLayer::of(&Frame {
                module: module.to_owned(),
                language,
                ..named_frame(function)
            })
        };
        let native = |function, module| layer(function, module, Language::Native);
        assert_eq!(layer("step", "", Language::Python), CodeLayer::Python);
        assert_eq!(
            layer("cudaMalloc", "[jit]", Language::Python),
            CodeLayer::Python
        );
        assert_eq!(
            native("_PyEval_EvalFrameDefault", "/usr/bin/python3.12"),
            CodeLayer::Interpreter
        );
        assert_eq!(
            native("python3.12+0x551418", "/usr/bin/python3.12"),
            CodeLayer::Interpreter
        );
        assert_eq!(native("PyObject_Call", "/app"), CodeLayer::Interpreter);
        assert_eq!(native("PyTorch_grow", "/app"), CodeLayer::Program);
        assert_eq!(native("main", "/app"), CodeLayer::Program);
        assert_eq!(
            native("__libc_start_main", "/usr/lib/libc.so.6"),
            CodeLayer::Program
        );
        let torch = "/x/site-packages/torch/lib/libtorch_cuda.so";
        assert_eq!(native("at::empty_cuda", torch), CodeLayer::Framework);
        let cupy = "/x/site-packages/cupy/cuda/memory.so";
        assert_eq!(native("__pyx_f_alloc", cupy), CodeLayer::Framework);
        let cublas = "/x/site-packages/nvidia/cublas/lib/libcublas.so.12";
        assert_eq!(native("cublasCreate_v2", cublas), CodeLayer::Cuda);
        assert_eq!(native("cudaMalloc", "/app"), CodeLayer::Cuda);
    }
}
