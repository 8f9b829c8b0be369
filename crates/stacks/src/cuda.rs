//! Frames of CUDA's own libraries, which reports fold.

use gpuprobe_cuda::{FUNCTIONS, Layer};
use gpuprobe_model::stack::{Frame, Language};

/// Prefixes of the names of CUDA's libraries and tools.
const LIBRARIES: &[&str] = &[
    "libcuda.so",
    "libcudart",
    "libcupti",
    "libnvidia-",
    "libToolsInjection",
    "libgpuprobe",
];
/// Prefixes of functions of the runtime, which programs may link statically, and of PyTorch's memory
/// reports.
const INTERNAL: &[&str] = &[
    "__cudart",
    "libcudart_static_",
    "cudart::",
    "c10::reportMemoryUsageToProfiler",
];
/// Headers with templates that call the function of the same name.
const HEADERS: &[&str] = &["cuda_runtime.h", "cuda_runtime_api.h"];

/// Whether a frame with this function, library and source file is CUDA's.
pub fn is_cuda(function: &str, module: &str, source: Option<&str>) -> bool {
    is_own_file(module)
        || begins_with(function, INTERNAL)
        || source.is_some_and(|source| HEADERS.contains(&file_name(source)))
        || FUNCTIONS
            .iter()
            .any(|known| known.layer != Layer::Library && known.symbol == function)
}

/// Whether a library is CUDA's.
pub(crate) fn is_own_file(module: &str) -> bool {
    begins_with(file_name(module), LIBRARIES)
}

/// Whether a frame is CUDA's; a Python frame never is, whatever its name.
pub fn is_own(frame: &Frame) -> bool {
    frame.language == Language::Native
        && is_cuda(&frame.function, &frame.module, frame.file.as_deref())
}

/// Number of innermost frames for which `is_own` holds; 0 if it holds for all, so that a frame is left.
pub fn own_frames<T>(frames: &[T], is_own: impl Fn(&T) -> bool) -> usize {
    let own = frames.iter().take_while(|frame| is_own(frame)).count();
    if own == frames.len() { 0 } else { own }
}

/// Whether `text` begins with one of these.
pub(crate) fn begins_with(text: &str, beginnings: &[&str]) -> bool {
    beginnings
        .iter()
        .any(|beginning| text.starts_with(beginning))
}

/// The part of `path` after the last slash.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn cuda_frames_are_recognised() {
        assert!(is_cuda(
            "0x12",
            "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
            None
        ));
        assert!(is_cuda("cudaMalloc", "/x/libcudart.so.12 (deleted)", None));
        // Statically linked.
        assert!(is_cuda("__cudart812", "/app", None));
        assert!(is_cuda("cudaMalloc", "/app", None));
        let header = Some("/usr/local/cuda/include/cuda_runtime.h");
        assert!(is_cuda(
            "cudaError cudaMalloc<float>(float**)",
            "/app",
            header
        ));
        assert!(!is_cuda("cudaMallocOrDie", "/app", Some("/src/app.cu")));
        assert!(!is_cuda("main", "/srv/libcudart-tests/app", None));
        assert!(!is_cuda("at::empty_cuda", "/x/libtorch_cuda.so", None));
    }

    #[test]
    fn only_innermost_frames_are_folded_and_never_all() {
        assert_eq!(own_frames(&[1, 1, 0, 1], |f| *f == 1), 2);
        assert_eq!(own_frames(&[1, 1], |f| *f == 1), 0);
        assert_eq!(own_frames(&[0, 1], |f| *f == 1), 0);
    }

    pub(crate) fn frame(function: &str, module: &str, language: Language) -> Frame {
        Frame {
            function: function.to_owned(),
            file: None,
            line: None,
            module: module.to_owned(),
            address: 1,
            source: None,
            language,
            inlined: false,
        }
    }

    #[test]
    fn a_python_frame_is_never_cudas() {
        assert!(is_own(&frame("cudaMalloc", "/app", Language::Native)));
        assert!(is_own(&frame("f", "/x/libcuda.so.1", Language::Native)));
        assert!(!is_own(&frame("cudaMalloc", "/app", Language::Python)));
        assert!(!is_own(&frame("f", "/app", Language::Native)));
        assert!(is_own_file("libcupti.so.12") && !is_own_file("/libcuda.so/app"));
        assert_eq!(["a", "/b/c", "d/"].map(file_name), ["a", "c", ""]);
    }
}
