//! Libraries of frameworks, and those with a memory pool of their own whose tensors cannot be traced.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_stacks::cuda::file_name;

/// TensorFlow: its allocator is traced in supported versions.
pub(crate) const TENSORFLOW: &str = "TensorFlow";

/// Name of a pool, and the kind of its memory, if it differs from that without a pool.
type Pool = (&'static str, Option<MemoryKind>);

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

/// A set of pools, by the place of their [`LIBRARIES`], one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameworkPools(u16);

impl FrameworkPools {
    fn where_true(is_meant: impl Fn(&str, Pool) -> bool) -> Self {
        let pools = LIBRARIES.iter().enumerate();
        let pools =
            pools.filter(|(_, (library, pool))| pool.is_some_and(|pool| is_meant(library, pool)));
        Self(pools.fold(0, |bits, (index, _)| bits | 1 << index))
    }

    /// The pools that the binary at `path` belongs to.
    pub(crate) fn of_file(path: &str) -> Self {
        Self::where_true(|library, _| is_of(path, library))
    }

    pub(crate) fn add(&mut self, others: Self) {
        self.0 |= others.0;
    }

    /// The pools in the set with memory of this kind.
    pub(crate) fn got(self, kind: Option<MemoryKind>) -> Self {
        let has = Self::where_true(|_, (_, of)| of.is_none() || of == kind);
        Self(self.0 & has.0)
    }
}

/// Names of the frameworks, each once.
pub(crate) fn names(pools: FrameworkPools) -> Vec<&'static str> {
    let all = LIBRARIES.iter().enumerate();
    let there = all.filter(|(index, _)| pools.0 & 1 << index != 0);
    there
        .filter_map(|(_, (_, pool))| Some(pool.as_ref()?.0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_pytorchs_native_allocator_are_no_such_pool() {
        let torch = FrameworkPools::of_file("/v/torch/lib/libc10_cuda.so");
        for (kind, expected) in [
            (MemoryKind::Async, &["PyTorch, cudaMallocAsync"][..]),
            (MemoryKind::Device, &[]),
            (MemoryKind::Vmm, &[]),
        ] {
            assert_eq!(names(torch.got(Some(kind))), expected, "{kind}");
        }
    }

    #[test]
    fn binaries_identify_frameworks() {
        for (path, name) in [
            ("/v/jax_plugins/xla_cuda12/xla_cuda_plugin.so", "JAX"),
            (
                "/v/cupy/cuda/memory.cpython-310-x86_64-linux-gnu.so",
                "CuPy",
            ),
            ("/v/tensorflow/libtensorflow_cc.so.2", TENSORFLOW),
            ("/v/librmm.so", "RMM"),
        ] {
            let pools = FrameworkPools::of_file(path).got(Some(MemoryKind::Device));
            assert_eq!(names(pools), [name], "{path}");
        }
        assert_eq!(
            FrameworkPools::of_file("/srv/xla_cuda_plugin/app"),
            FrameworkPools::default()
        );
    }
}
