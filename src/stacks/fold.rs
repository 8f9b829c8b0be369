//! Leaving out what is CUDA's own.

use super::Frame;

/// The frames without the innermost ones that are CUDA's own, at least one.
pub fn fold(frames: &[Frame]) -> &[Frame] {
    let own = frames.iter().take_while(|frame| is_cuda(frame)).count();
    let kept = own.min(frames.len().saturating_sub(1));
    &frames[kept..]
}

/// Whether the frame is in one of CUDA's libraries, or in the runtime that a program brings
/// with it.
fn is_cuda(frame: &Frame) -> bool {
    let name = frame.module.rsplit('/').next().unwrap_or_default();
    is_cuda_library(name) || (!name.contains(".so") && is_runtime_function(&frame.function))
}

/// Wheels rename the runtime: `libcudart-d0da41ae.so.11.0`, `libcudart.faf08d9a.so.13`.
fn is_cuda_library(name: &str) -> bool {
    let is_shared = name.contains(".so");
    let is_named = |prefix: &str| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(['.', '-']))
    };
    is_shared && (is_named("libcuda") || is_named("libcudart") || name.starts_with("libnvidia-"))
}

/// Exported functions of the runtime and its internal ones (`__cudart612`, `cudart::...`).
fn is_runtime_function(function: &str) -> bool {
    let is_capital = |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase());
    let is_api = function.strip_prefix("cuda").is_some_and(is_capital);
    is_api || function.starts_with("__cuda") || function.starts_with("cudart::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(places: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |&(function, module): &(&str, &str)| Frame {
            function: function.to_owned(),
            file: None,
            line: None,
            module: module.to_owned(),
            address: 0,
            language: super::super::Language::Native,
            inlined: false,
        };
        places.iter().map(frame).collect()
    }

    fn folded(places: &[(&str, &str)]) -> Vec<String> {
        let frames = frames(places);
        fold(&frames).iter().map(|f| f.function.clone()).collect()
    }

    #[test]
    fn only_the_innermost_run_is_folded() {
        let stack = [
            ("cuMemAlloc_v2", "/usr/lib/libcuda.so.580.1"),
            ("libcudart.so+0x1", "/x/libcudart.faf08d9a.so.13"),
            ("cudaMalloc", "/x/libcudart-d0da41ae.so.11.0"),
            ("alloc", "/x/libtorch.so"),
            ("callback", "/usr/lib/libcuda.so.1"),
            ("main", "/bin/app"),
        ];
        assert_eq!(folded(&stack), ["alloc", "callback", "main"]);
        assert_eq!(folded(&stack[..3]), ["cudaMalloc"]);
        assert_eq!(folded(&[]), [""; 0]);
    }

    #[test]
    fn static_runtimes_are_folded_by_name() {
        let stack = [
            ("__cudart612", "/bin/app"),
            ("cudaMalloc", "/bin/app"),
            ("cudaculate", "/bin/app"),
            ("main", "/bin/app"),
        ];
        assert_eq!(folded(&stack), ["cudaculate", "main"]);
        // A library's function of such a name is its own: it wraps the runtime's.
        let wrapped = [("cudaMallocWrapped", "/x/libmine.so"), ("main", "/bin/app")];
        assert_eq!(folded(&wrapped), ["cudaMallocWrapped", "main"]);
        let debugger = [("x", "/x/libcudadebugger.so.1"), ("main", "/bin/app")];
        assert_eq!(folded(&debugger), ["x", "main"]);
    }
}
