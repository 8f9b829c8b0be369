//! Libraries of frameworks, and those with a memory pool of their own whose tensors cannot be traced.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_stacks::cuda::file_name;

/// TensorFlow: its allocator is traced in supported versions.
pub(crate) const TENSORFLOW: &str = "TensorFlow";

/// Name of a pool, and the kind of its memory, if it differs from that without a pool.
pub(crate) type Pool = (&'static str, Option<MemoryKind>);

/// Beginnings of the names of libraries, or parts of their paths. Pools were observed with PyTorch 2.11 with
/// `backend:cudaMallocAsync`, JAX 0.7 and CuPy 13; the others by the names of their libraries.
const LIBRARIES: [(&str, Option<Pool>); 13] = [
    (
        "libc10_cuda",
        Some(("PyTorch, cudaMallocAsync", Some(MemoryKind::Async))),
    ),
    ("xla_cuda_plugin", Some(("JAX", None))),
    ("/cupy/", Some(("CuPy", None))),
    ("libtensorflow", Some((TENSORFLOW, None))),
    ("librmm", Some(("RMM", None))),
    ("libtorch", None),
    ("libc10", None),
    ("_C.", None),
    ("libxla", None),
    ("xla_extension", None),
    ("_pywrap_tensorflow", None),
    ("libjax", None),
    ("pjrt_c_api", None),
];

fn is_of(path: &str, library: &str) -> bool {
    match library.starts_with('/') {
        true => path.contains(library),
        false => file_name(path).starts_with(library),
    }
}

/// Whether the binary at `path` belongs to a framework.
pub(crate) fn is_framework(path: &str) -> bool {
    LIBRARIES.iter().any(|(library, _)| is_of(path, library))
}

/// The pool that the binary at `path` belongs to.
pub(crate) fn pool_of(path: &str) -> Option<Pool> {
    let mut pools = LIBRARIES.iter().filter(|(_, pool)| pool.is_some());
    pools.find(|(library, _)| is_of(path, library))?.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_identify_frameworks() {
        for (path, pool) in [
            (
                "/v/torch/lib/libc10_cuda.so",
                Some(("PyTorch, cudaMallocAsync", Some(MemoryKind::Async))),
            ),
            (
                "/v/jax_plugins/xla_cuda12/xla_cuda_plugin.so",
                Some(("JAX", None)),
            ),
            (
                "/v/cupy/cuda/memory.cpython-310-x86_64-linux-gnu.so",
                Some(("CuPy", None)),
            ),
            (
                "/v/tensorflow/libtensorflow_cc.so.2",
                Some((TENSORFLOW, None)),
            ),
            ("/v/librmm.so", Some(("RMM", None))),
            ("/srv/xla_cuda_plugin/app", None),
        ] {
            assert_eq!(pool_of(path), pool, "{path}");
        }
    }
}
