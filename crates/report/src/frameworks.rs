//! Frameworks that take memory from CUDA for a pool of their own, and do not tell what they hand out of it.

use gpuprobe_cuda::MemoryKind;
use gpuprobe_stacks::cuda::file_name;

/// It tells in versions that are known.
pub(crate) const TENSORFLOW: &str = "TensorFlow";

/// What a framework looks like that has a pool.
struct Pool {
    name: &'static str,
    /// Part of the path of its file of code.
    module: &'static str,
    /// The kind of memory that the pool has, if it has another than where it has none.
    kind: Option<MemoryKind>,
}

/// Seen in PyTorch 2.11 with `backend:cudaMallocAsync`, JAX 0.7 and CuPy 13; the others by the names of
/// their libraries.
const POOLS: [Pool; 5] = [
    Pool {
        name: "PyTorch, cudaMallocAsync",
        module: "libc10_cuda",
        kind: Some(MemoryKind::Async),
    },
    Pool {
        name: "JAX",
        module: "xla_cuda_plugin",
        kind: None,
    },
    Pool {
        name: "CuPy",
        module: "/cupy/cuda/",
        kind: None,
    },
    Pool {
        name: TENSORFLOW,
        module: "libtensorflow",
        kind: None,
    },
    Pool {
        name: "RMM",
        module: "librmm",
        kind: None,
    },
];

/// Some of [`POOLS`], a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pools(u8);

impl Pools {
    fn where_true(is_meant: impl Fn(&Pool) -> bool) -> Self {
        let bits = POOLS.iter().enumerate();
        let bits = bits.filter(|(_, pool)| is_meant(pool));
        Self(bits.fold(0, |bits, (index, _)| bits | 1 << index))
    }

    /// Those that the file of code at `path` is of.
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

    /// Those of them whose memory is of this kind.
    pub(crate) fn got(self, kind: Option<MemoryKind>) -> Self {
        let has = Self::where_true(|pool| pool.kind.is_none() || pool.kind == kind);
        Self(self.0 & has.0)
    }
}

/// What they are called, each once.
pub(crate) fn names(pools: Pools) -> Vec<&'static str> {
    let all = POOLS.iter().enumerate();
    let there = all.filter(|(index, _)| pools.0 & 1 << index != 0);
    there.map(|(_, pool)| pool.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytorchs_own_segments_are_no_pool_of_this_kind() {
        let torch = Pools::of_file("/v/torch/lib/libc10_cuda.so");
        for (kind, expected) in [
            (MemoryKind::Async, &["PyTorch, cudaMallocAsync"][..]),
            (MemoryKind::Device, &[]),
            (MemoryKind::Vmm, &[]),
        ] {
            assert_eq!(names(torch.got(Some(kind))), expected, "{kind}");
        }
    }

    #[test]
    fn files_are_of_frameworks() {
        for (path, name) in [
            ("/v/jax_plugins/xla_cuda12/xla_cuda_plugin.so", "JAX"),
            (
                "/v/cupy/cuda/memory.cpython-310-x86_64-linux-gnu.so",
                "CuPy",
            ),
            ("/v/tensorflow/libtensorflow_cc.so.2", TENSORFLOW),
            ("/v/librmm.so", "RMM"),
        ] {
            let pools = Pools::of_file(path).got(Some(MemoryKind::Device));
            assert_eq!(names(pools), [name], "{path}");
        }
        assert_eq!(Pools::of_file("/srv/xla_cuda_plugin/app"), Pools::default());
    }
}
