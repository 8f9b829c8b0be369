//! Frames of allocators. They are the same for all allocations that a program makes through the allocator,
//! and so do not identify the call site.

use super::cuda::{begins_with, file_name, is_own};
use gpuprobe_model::stack::{Frame, Language};

/// Prefixes of allocator functions.
const FUNCTIONS: &[&str] = &[
    // PyTorch.
    "c10::",
    "at::detail::",
    "at::TensorIterator",
    "at::native::empty",
    "at::_ops::empty",
    "at::native::new_empty",
    "at::_ops::new_empty",
    "at::native::resize_",
    "at::empty",
    "at::cuda::",
    "at::(anonymous namespace)::",
    "torch::cuda::CUDAPluggableAllocator",
    "torch::autograd::VariableType::(anonymous namespace)::empty",
    // RMM.
    "rmm::",
    "__pyx_f_3rmm",
    "__pyx_pw_3rmm",
    "__pyx_pf_3rmm",
    // CuPy.
    "__pyx_f_4cupy_4cuda_6memory",
    "__pyx_pw_4cupy_4cuda_6memory",
    "__pyx_pf_4cupy_4cuda_6memory",
    // TensorFlow and XLA.
    "tsl::",
    "tensorflow::BFCAllocator",
    "tensorflow::GPU",
    "stream_executor::",
    "xla::TfAllocatorAdapter",
    "xla::LocalDeviceState",
    "xla::StreamExecutor",
    "se::",
    // ONNX Runtime.
    "onnxruntime::CUDAAllocator",
    "onnxruntime::BFCArena",
    "onnxruntime::IAllocator",
    // Paddle.
    "paddle::memory::",
    // Thrust and CUB.
    "thrust::",
    "cub::",
    // Kokkos.
    "Kokkos::Impl::",
    "Kokkos::Cuda",
    // AMReX.
    "amrex::Arena",
    "amrex::CArena",
    // Umpire.
    "umpire::",
    // OpenCV.
    "cv::cuda::GpuMat::",
    // ggml.
    "ggml_cuda_device_malloc",
    "ggml_cuda_pool",
    "ggml_backend_cuda_buffer_type_alloc",
    // NCCL.
    "ncclCudaMalloc",
    "ncclCuMemAlloc",
    "ncclCudaCalloc",
    // the C++ library.
    "operator new",
    "std::",
    "__gnu_cxx::",
    // Rust's library.
    "alloc::",
    "<alloc::",
    "core::",
    "<core::",
];

/// Prefixes of the names of libraries that are allocators as a whole.
const FILES: &[&str] = &["libc10", "librmm", "cumem_allocator"];

/// Start functions of programs.
const FIRST: &[&str] = &["main", "<module>"];
/// Functions below the start function of a program or thread.
const BELOW: &[&str] = &[
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_init_first",
    "start_thread",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "thread_start",
];

/// Whether a frame belongs to a known allocator instead of its caller.
pub fn is_allocator(function: &str, module: &str) -> bool {
    is_allocator_file(module) || begins_with(without_return_type(function), FUNCTIONS)
}

/// Whether a library is an allocator as a whole.
pub(crate) fn is_allocator_file(module: &str) -> bool {
    begins_with(file_name(module), FILES)
}

/// Whether a frame is CUDA's or an allocator's.
pub fn is_inner(frame: &Frame) -> bool {
    let is_native = frame.language == Language::Native;
    is_native && (is_own(frame) || is_allocator(&frame.function, &frame.module))
}

/// Whether a function is below the start function of a program or thread.
pub fn is_below_main(function: &str) -> bool {
    BELOW.contains(&base_name(function))
}

fn base_name(function: &str) -> &str {
    function.split(['@', '(']).next().unwrap_or(function)
}

/// Number of frames down to the start function of the program or thread, inclusive.
pub fn down_to_start<T>(frames: &[T], function: impl Fn(&T) -> &str) -> usize {
    let name = |frame| base_name(function(frame));
    let main = frames
        .iter()
        .rposition(|frame| FIRST.contains(&name(frame)));
    if let Some(main) = main {
        return main + 1;
    }
    let below = frames
        .iter()
        .rev()
        .take_while(|frame| is_below_main(function(frame)));
    match frames.len() - below.count() {
        0 => frames.len(),
        shown => shown,
    }
}

/// The name without the return type, which demangled templates begin with.
fn without_return_type(function: &str) -> &str {
    let mut depth = 0_i32;
    let mut begin = 0;
    for (index, byte) in function.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            b'(' if depth == 0 && !function[index..].starts_with("(anonymous namespace)") => break,
            b'(' => depth += 1,
            b')' => depth -= 1,
            b' ' if depth == 0 && !function[..index].ends_with("operator") => begin = index + 1,
            _ => {}
        }
    }
    &function[begin..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::tests::frame;

    #[test]
    fn allocators_are_recognised_by_function_and_file() {
        for name in [
            "c10::cuda::CUDACachingAllocator::Native::(anonymous namespace)::DeviceCachingAllocator::alloc_block(bool)",
            "rmm::mr::cuda_memory_resource::do_allocate(unsigned long, rmm::cuda_stream_view)",
            "float* thrust::detail::allocate<float>(int)",
            "tsl::BFCAllocator::Extend(unsigned long, unsigned long)",
            "__pyx_f_4cupy_4cuda_6memory_6Memory___init__",
            "std::vector<float, pool<float> >::_M_allocate(unsigned long)",
            "operator new(unsigned long)",
        ] {
            assert!(is_allocator(name, "/usr/lib/libx.so"), "{name}");
        }
        assert!(is_allocator("f", "/venv/torch/lib/libc10_cuda.so"));
        for name in [
            "grow",
            "at::native::zeros_like(at::Tensor const&)",
            "Foo<std::less<int> >::grow()",
            "main",
        ] {
            assert!(!is_allocator(name, "/app"), "{name}");
        }
    }

    #[test]
    fn frames_below_main_are_not_shown() {
        let shown = |frames: &[&str]| down_to_start(frames, |frame| frame);
        assert_eq!(
            shown(&["grow", "main", "__libc_start_call_main", "_start"]),
            2
        );
        assert_eq!(shown(&["grow", "work(void*)", "start_thread", "clone3"]), 2);
        assert_eq!(shown(&["grow", "step"]), 2);
        assert_eq!(shown(&["clone3"]), 1);
        assert_eq!(
            shown(&["f", "main(int, char**)", "__libc_start_main@@GLIBC_2.34"]),
            2
        );
        assert_eq!(shown(&[]), 0);
    }

    #[test]
    fn frames_of_cuda_and_of_allocators_are_inner() {
        let native = |function, module| frame(function, module, Language::Native);
        let cuda = native("cudaMalloc", "/x/libcudart.so.12");
        let allocator = native("rmm::allocate(int)", "/app");
        let library = native("f", "/x/libc10.so");
        let python = frame("cudaMalloc", "/x/libcudart.so.12", Language::Python);
        let user = native("grow", "/app");
        for (frame, is_inner) in [
            (&cuda, true),
            (&allocator, true),
            (&library, true),
            (&python, false),
            (&user, false),
        ] {
            assert_eq!(super::is_inner(frame), is_inner, "{frame:?}");
        }
        assert!(is_below_main("clone3") && !is_below_main("clone4"));
    }

    #[test]
    fn return_types_are_not_part_of_a_name() {
        for (function, name) in [
            ("f", "f"),
            ("f(int, char)", "f(int, char)"),
            ("void f(int, char)", "f(int, char)"),
            ("std::pair<int, int> g<a b>(c d)", "g<a b>(c d)"),
            ("a<b(c d)> f(x y)", "f(x y)"),
            ("a<b<c d> e> f(x y)", "f(x y)"),
            (
                "void (anonymous namespace)::f<a b>(c d)",
                "(anonymous namespace)::f<a b>(c d)",
            ),
            ("(anonymous namespace)::T<int> f(x y)", "f(x y)"),
            ("operator new(unsigned long)", "operator new(unsigned long)"),
            (
                "void* operator new(unsigned long)",
                "operator new(unsigned long)",
            ),
            ("", ""),
        ] {
            assert_eq!(without_return_type(function), name, "{function}");
        }
    }
}
