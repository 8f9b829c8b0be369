//! Profiler hooks of frameworks' caching allocators, which reserve memory from CUDA in large pieces
//! and allocate small blocks from it that CUDA does not see.

use std::path::Path;

use super::table::{A0, A1, A2, A3, A4, A5, Names, only, row};
use super::{EntryValue, Function, Layer, MemoryKind, Op};

crate::named! {
    /// A framework with an allocator of its own.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Framework {
        /// Its blocks are tensors.
        PyTorch = "PyTorch",
        /// Its allocator is XLA's, in a library of its own.
        TensorFlow = "TensorFlow",
        /// JAX's compiler and runtime.
        Xla = "XLA",
        /// The memory manager of RAPIDS.
        Rmm = "RMM",
        /// Its pools are of one device each.
        CuPy = "CuPy",
        /// Its arenas are of the GPU or the host.
        OnnxRuntime = "ONNX Runtime",
    }
}

impl Framework {
    /// Key in JSON, name of devices, name of blocks, allocator.
    const fn words(self) -> [&'static str; 4] {
        match self {
            Self::PyTorch => ["pytorch", "cuda", "tensors", "c10::CachingAllocator"],
            Self::TensorFlow => ["tensorflow", "GPU", "tensors", "tsl::BFCAllocator"],
            Self::Xla => ["xla", "gpu", "chunks", "tsl::BFCAllocator"],
            Self::Rmm => ["rmm", "GPU", "buffers", "rmm::mr::pool_memory_resource"],
            Self::CuPy => ["cupy", "GPU", "chunks", "cupy.cuda.MemoryPool"],
            Self::OnnxRuntime => ["onnxruntime", "cuda", "buffers", "onnxruntime::BFCArena"],
        }
    }

    /// The key of its reports in JSON.
    pub const fn key(self) -> &'static str {
        self.words()[0]
    }

    /// How its devices are called: `cuda:0`.
    pub const fn device(self) -> &'static str {
        self.words()[1]
    }

    /// What it calls its blocks.
    pub const fn blocks(self) -> &'static str {
        self.words()[2]
    }

    /// Name of its allocator in reports.
    pub(crate) const fn allocator(self) -> &'static str {
        self.words()[3]
    }

    /// What the names of its libraries begin with, in any folder or in this one.
    const fn libraries(self) -> &'static [&'static str] {
        match self {
            Self::PyTorch => &["libc10.so"],
            Self::TensorFlow => &["libtensorflow_framework.so"],
            Self::Xla => &["xla_cuda_plugin.so"],
            Self::Rmm => &["librmm.so"],
            Self::CuPy => &["cupy/cuda/memory.cpython-"],
            Self::OnnxRuntime => &["libonnxruntime.so", "onnxruntime_pybind11_state."],
        }
    }

    /// The framework with a library at this path.
    pub fn of_library(path: &Path) -> Option<Self> {
        let (name, folder) = (path.file_name()?.to_str()?, path.parent()?);
        let is_there = |library: &str| {
            let (parent, start) = library.rsplit_once('/').unwrap_or(("", library));
            name.starts_with(start) && folder.ends_with(parent)
        };
        let mut all = Self::ALL.into_iter();
        all.find(|one| one.libraries().iter().any(|library| is_there(library)))
    }

    /// Whether the rows are right for its library at this path. Objects of Python without a global lock, or for debugging
    /// (`cpython-314t`), have their fields elsewhere.
    pub fn is_known(self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let python = name.split('-').nth(1).unwrap_or_default();
        self != Self::CuPy || python.bytes().all(|byte| byte.is_ascii_digit())
    }

    /// Whether its library does not export the functions of its allocator, but has their symbols.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::Xla | Self::CuPy)
    }

    /// Whether its functions report blocks of host memory, too.
    pub const fn has_host_blocks(self) -> bool {
        matches!(self, Self::TensorFlow | Self::Xla | Self::OnnxRuntime)
    }
}

const fn hook(
    framework: Framework,
    op: Op,
    symbol: &'static str,
    variants: &'static [&'static str],
) -> Function {
    Function {
        kind: MemoryKind::Tensor,
        framework: Some(framework),
        ..row(Layer::Framework, op, Names(symbol, variants))
    }
}

/// `c10::reportMemoryUsageToProfiler(void *address, bytes, allocated, reserved, c10::Device)`:
/// PyTorch calls it for every block that its caching allocator allocates or frees (`bytes` is
/// negative for a free), with the totals after that, whether or not a profiler is active. The two
/// bytes of the device are its type and its index. The three numbers are `int64_t` or `size_t` by
/// version: 1.10 to 1.13 have `lll`, 2.0 and later `lmm`. Before 1.10 the function has one number
/// and no address, and another symbol.
const USAGE: Function = Function {
    address: A0,
    size: A1,
    out: A2,
    stream: A3,
    device: A4.bits32(),
    ..hook(
        Framework::PyTorch,
        Op::Tensor,
        "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
        &[
            "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE",
            "_ZN3c1027reportMemoryUsageToProfilerEPvllmNS_6DeviceE",
            "_ZN3c1027reportMemoryUsageToProfilerEPvlmlNS_6DeviceE",
        ],
    )
};

/// `tsl::BFCAllocator::AddTraceMe(std::string_view what, const void *address, long requested, long
/// bytes)`: TensorFlow and XLA call it for every chunk that the allocator allocates (`MemoryAllocation`)
/// or frees (`MemoryDeallocation`), whether or not tracing is active; the string is passed as
/// length and text. The allocator is argument 0. Source: TensorFlow 2.19; the wheels of JAX's plugin from 0.7 to 0.12. Host memory has such
/// allocators, too.
const CHUNK: Function = Function {
    address: A3,
    second: A4,
    size: A5,
    out: A0,
    stream: A1,
    ..hook(Framework::TensorFlow, Op::Tensor, ADD_TRACE_ME, &[])
};
const ADD_TRACE_ME: &str =
    "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll";

/// The same in XLA's library.
const XLA_CHUNK: Function = Function {
    framework: Some(Framework::Xla),
    symbol: "tsl::BFCAllocator::AddTraceMe (XLA)",
    variants: &[ADD_TRACE_ME],
    ..CHUNK
};

/// `tsl::BFCAllocator::DumpMemoryLog(unsigned long bytes[, AllocationEnd])`: XLA calls it once, after all its attempts
/// to get memory have failed. The allocator is argument 0.
const XLA_OUT_OF_MEMORY: Function = Function {
    size: A1,
    ..hook(
        Framework::Xla,
        Op::OutOfMemory,
        "_ZN3tsl12BFCAllocator13DumpMemoryLogEm",
        &["_ZN3tsl12BFCAllocator13DumpMemoryLogEmNS_13AllocationEndE"],
    )
};

/// `c10::reportOutOfMemoryToProfiler(requested, allocated, reserved, c10::Device)`: PyTorch calls
/// it after its caching allocator has released its cache and CUDA has failed again, right before it
/// throws. Since 1.12; the request is `int64_t`; the totals are `int64_t` in 1.x and `size_t` from
/// 2.0 on.
const OUT_OF_MEMORY: Function = Function {
    size: A0,
    out: A1,
    stream: A2,
    device: A3.bits32(),
    ..hook(
        Framework::PyTorch,
        Op::OutOfMemory,
        "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
        &[
            "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE",
            "_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE",
        ],
    )
};

/// `rmm::mr::detail::pool_memory_resource_impl::allocate_from_block(block const &, size_t)`, which returns two blocks in
/// memory of argument 0: the first has the address of the one that is passed in, its first field, and that size.
/// Exported since RMM 26.6; from 26.8 on, in an inline namespace named after the release.
const BUFFER: Function = Function {
    address: A2.behind(0),
    size: A3,
    ..hook(
        Framework::Rmm,
        Op::Tensor,
        "rmm::mr::pool_memory_resource::allocate",
        &["_ZN3rmm*2mr6detail25pool_memory_resource_impl19allocate_from_blockERKNS*_5blockEm"],
    )
};

/// `rmm::mr::detail::pool_memory_resource_impl::free_block(void *, size_t)`: a buffer goes back to its pool.
const FREED_BUFFER: Function = Function {
    address: A2,
    ..hook(
        Framework::Rmm,
        Op::Tensor,
        "rmm::mr::pool_memory_resource::deallocate",
        &["_ZN3rmm*2mr6detail25pool_memory_resource_impl10free_blockEPvm"],
    )
};

/// Blocks from before the tracing, which were found in the memory of the process. Never called.
const FOUND: Function = Function {
    kind: MemoryKind::Tensor,
    ..row(Layer::Framework, Op::SelfTest, only("before attach"))
};

/// The same of blocks from later, when the hooks were not probed.
const UNSEEN: Function = Function {
    kind: MemoryKind::Tensor,
    ..row(Layer::Framework, Op::SelfTest, only("between windows"))
};

/// `PooledMemory._init(self, _Chunk chunk, pool)`, as a chunk of a `SingleDeviceMemoryPool` is handed out, after it was
/// split. A chunk has at 24 its memory, which has its address at 16, at 32 its offset in that, and at 40 its size.
/// Read in the debugging information of the wheels of CuPy 13.6 to 14.2, for CUDA 12 and 13 and Python 3.10 to 3.14 with
/// its global lock.
const POOLED: Function = Function {
    address: A1.behind_twice(24, 16),
    second: A1.behind(32),
    size: A1.behind(40),
    ..hook(
        Framework::CuPy,
        Op::Tensor,
        "cupy.cuda.PooledMemory._init",
        &["_ZL48__pyx_f_4cupy_4cuda_6memory_12PooledMemory__initP*_ChunkP7_object"],
    )
};

/// `PooledMemory.free(self)`, of which the compiler makes clones: the chunk goes back to its pool. The address is set
/// to zero, so that there is none where it is called again.
const FREED_POOLED: Function = Function {
    address: A0.behind(16),
    ..hook(
        Framework::CuPy,
        Op::Tensor,
        "cupy.cuda.PooledMemory.free",
        &["_ZL47__pyx_f_4cupy_4cuda_6memory_12PooledMemory_freeP*"],
    )
};

/// `onnxruntime::BFCArena::AllocateRawInternal(size_t, ...)`, to which `Alloc(size_t)` and `AllocOnStream(size_t, Stream *)`
/// jump, the latter at once. The size is the one that is requested; chunks are rounded up to 256 bytes. `Reserve` bypasses
/// the arena. The slots are those of the wheels of ONNX Runtime 1.26 to 1.31; older ones without the class have others.
const ARENA_REQUEST: Function = Function {
    size: A1,
    ..hook(
        Framework::OnnxRuntime,
        Op::BlockRequest,
        "onnxruntime::BFCArena::AllocateRawInternal",
        &["_ZTVN11onnxruntime19StreamAwareBFCArenaE[4]>"],
    )
};

/// Its return, not by a return probe: it throws where there is no memory.
const ARENA: Function = Function {
    address: EntryValue::RESULT,
    ..hook(
        Framework::OnnxRuntime,
        Op::Tensor,
        "onnxruntime::BFCArena::Alloc",
        &["_ZTVN11onnxruntime19StreamAwareBFCArenaE[4]>ret"],
    )
};

/// `onnxruntime::BFCArena::Free(void *)`.
const FREED_ARENA: Function = Function {
    address: A1,
    ..hook(
        Framework::OnnxRuntime,
        Op::Tensor,
        "onnxruntime::BFCArena::Free",
        &["_ZTVN11onnxruntime19StreamAwareBFCArenaE[5]"],
    )
};

pub(super) const FRAMEWORKS: &[Function] = &[
    USAGE,
    CHUNK,
    OUT_OF_MEMORY,
    XLA_CHUNK,
    XLA_OUT_OF_MEMORY,
    BUFFER,
    FREED_BUFFER,
    POOLED,
    FREED_POOLED,
    ARENA_REQUEST,
    ARENA,
    FREED_ARENA,
    FOUND,
    UNSEEN,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_by_name_and_folder() {
        for (path, framework, is_known) in [
            (
                "/v/cupy/cuda/memory.cpython-312-x86_64-linux-gnu.so",
                Framework::CuPy,
                true,
            ),
            (
                "/v/cupy/cuda/memory.cpython-314t-x86_64-linux-gnu.so",
                Framework::CuPy,
                false,
            ),
            ("/v/libonnxruntime.so.1", Framework::OnnxRuntime, true),
            (
                "/v/onnxruntime_pybind11_state.cpython-313t-x86_64-linux-gnu.so",
                Framework::OnnxRuntime,
                true,
            ),
            ("/v/libc10.so", Framework::PyTorch, true),
        ] {
            let path = Path::new(path);
            assert_eq!(Framework::of_library(path), Some(framework));
            assert_eq!(framework.is_known(path), is_known, "{path:?}");
        }
        for path in [
            "/v/notcupy/cuda/memory.cpython-312.so",
            "/v/cuda/memory.cpython-312.so",
            "/v/libonnxruntime_providers_cuda.so",
        ] {
            assert_eq!(Framework::of_library(Path::new(path)), None, "{path}");
        }
    }
}
