//! Frameworks that take memory from CUDA for a pool of their own, and do not tell what they hand out of it.

use super::SiteReport;
use gpuprobe_model::stack::Frame;
use gpuprobe_stacks::cuda::file_name;

/// It tells in versions that are known.
const TENSORFLOW: &str = "TensorFlow";

/// What a frame of such a framework looks like.
struct Pool {
    name: &'static str,
    /// Part of the path of its file of code.
    module: &'static str,
    /// Part of the function's name.
    function: &'static str,
}

/// Seen in PyTorch 2.11 with `backend:cudaMallocAsync`, JAX 0.7 and CuPy 13; the others by the names of
/// their libraries.
const POOLS: [Pool; 5] = [
    Pool {
        name: "PyTorch, cudaMallocAsync",
        module: "libc10_cuda",
        function: "CudaMallocAsync",
    },
    Pool {
        name: "JAX",
        module: "xla_cuda_plugin",
        function: "",
    },
    Pool {
        name: "CuPy",
        module: "/cupy/cuda/",
        function: "",
    },
    Pool {
        name: TENSORFLOW,
        module: "libtensorflow",
        function: "",
    },
    Pool {
        name: "RMM",
        module: "librmm",
        function: "",
    },
];

impl Pool {
    fn is_of(&self, frame: &Frame) -> bool {
        let module = match self.module.starts_with('/') {
            true => &frame.module,
            false => file_name(&frame.module),
        };
        module.contains(self.module) && frame.function.contains(self.function)
    }
}

/// The frameworks whose pools got memory at one of `sites`, each once; without TensorFlow where it tells.
pub(super) fn pools(sites: &[SiteReport], tensorflow_tells: bool) -> Vec<&'static str> {
    let grew = |pool: &&Pool| {
        let mut frames = sites.iter().flat_map(|site| &site.stack);
        frames.any(|frame| pool.is_of(frame))
    };
    let names = POOLS.iter().filter(grew).map(|pool| pool.name);
    names
        .filter(|&name| name != TENSORFLOW || !tensorflow_tells)
        .collect()
}
