//! Frameworks with a memory pool of their own whose tensors cannot be traced.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_stacks::cuda::file_name;

/// TensorFlow: its allocator is traced in supported versions.
pub(crate) const TENSORFLOW: &str = "TensorFlow";

/// Properties that identify a framework with a pool.
struct FrameworkPool {
    name: &'static str,
    /// Part of the path of its library.
    module: &'static str,
    /// Kind of memory of the pool, if it differs from that without a pool.
    kind: Option<MemoryKind>,
}

/// Observed with PyTorch 2.11 with `backend:cudaMallocAsync`, JAX 0.7 and CuPy 13; the others by
/// the names of their libraries.
const POOLS: [FrameworkPool; 5] = [
    FrameworkPool {
        name: "PyTorch, cudaMallocAsync",
        module: "libc10_cuda",
        kind: Some(MemoryKind::Async),
    },
    FrameworkPool {
        name: "JAX",
        module: "xla_cuda_plugin",
        kind: None,
    },
    FrameworkPool {
        name: "CuPy",
        module: "/cupy/cuda/",
        kind: None,
    },
    FrameworkPool {
        name: TENSORFLOW,
        module: "libtensorflow",
        kind: None,
    },
    FrameworkPool {
        name: "RMM",
        module: "librmm",
        kind: None,
    },
];

/// A set of [`POOLS`], one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameworkPools(u8);

impl FrameworkPools {
    fn where_true(is_meant: impl Fn(&FrameworkPool) -> bool) -> Self {
        let bits = POOLS.iter().enumerate();
        let bits = bits.filter(|(_, pool)| is_meant(pool));
        Self(bits.fold(0, |bits, (index, _)| bits | 1 << index))
    }

    /// The pools that the binary at `path` belongs to.
    pub(crate) fn of_file(path: &str) -> Self {
        Self::where_true(|pool| {
            let part = match pool.module.starts_with('/') {
                true => path,
                false => file_name(path),
            };
            part.contains(pool.module)
        })
    }

    pub(crate) fn add(&mut self, others: Self) {
        self.0 |= others.0;
    }

    /// The pools in the set with memory of this kind.
    pub(crate) fn got(self, kind: Option<MemoryKind>) -> Self {
        let has = Self::where_true(|pool| pool.kind.is_none() || pool.kind == kind);
        Self(self.0 & has.0)
    }
}

/// Names of the frameworks, each once.
pub(crate) fn names(pools: FrameworkPools) -> Vec<&'static str> {
    let all = POOLS.iter().enumerate();
    let there = all.filter(|(index, _)| pools.0 & 1 << index != 0);
    there.map(|(_, pool)| pool.name).collect()
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
