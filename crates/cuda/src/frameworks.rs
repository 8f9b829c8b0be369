//! Profiler hooks of frameworks' caching allocators, which reserve memory from CUDA in large pieces
//! and allocate small blocks from it that CUDA does not see.

use super::table::{A0, A1, A2, A3, A4, A5, Names, row};
use super::{Function, Layer, MemoryKind, Op};

/// A framework with an allocator of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framework {
    /// Its blocks are tensors.
    PyTorch,
    /// Its allocator is XLA's, in a library of its own.
    TensorFlow,
    /// JAX's compiler and runtime.
    Xla,
    /// The memory manager of RAPIDS.
    Rmm,
}

impl Framework {
    const ALL: [Self; 4] = [Self::PyTorch, Self::TensorFlow, Self::Xla, Self::Rmm];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PyTorch => "PyTorch",
            Self::TensorFlow => "TensorFlow",
            Self::Xla => "XLA",
            Self::Rmm => "RMM",
        }
    }

    /// The key of its reports in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::PyTorch => "pytorch",
            Self::TensorFlow => "tensorflow",
            Self::Xla => "xla",
            Self::Rmm => "rmm",
        }
    }

    /// How its devices are called: `cuda:0`.
    pub const fn device(self) -> &'static str {
        match self {
            Self::PyTorch => "cuda",
            Self::TensorFlow | Self::Rmm => "GPU",
            Self::Xla => "gpu",
        }
    }

    /// What it calls its blocks.
    pub const fn blocks(self) -> &'static str {
        match self {
            Self::PyTorch | Self::TensorFlow => "tensors",
            Self::Xla => "chunks",
            Self::Rmm => "buffers",
        }
    }

    /// What the name of its library begins with.
    const fn library(self) -> &'static str {
        match self {
            Self::PyTorch => "libc10.so",
            Self::TensorFlow => "libtensorflow_framework.so",
            Self::Xla => "xla_cuda_plugin.so",
            Self::Rmm => "librmm.so",
        }
    }

    /// The framework with a library of this name.
    pub fn of_library(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|one| name.starts_with(one.library()))
    }

    /// Whether its library does not export the functions of its allocator, but has their symbols.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::Xla)
    }
}

const fn hook(framework: Framework, op: Op, names: Names) -> Function {
    Function {
        kind: MemoryKind::Tensor,
        framework: Some(framework),
        ..row(Layer::Framework, op, names)
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
        Names(
            "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
            &[
                "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE",
                "_ZN3c1027reportMemoryUsageToProfilerEPvllmNS_6DeviceE",
                "_ZN3c1027reportMemoryUsageToProfilerEPvlmlNS_6DeviceE",
            ],
        ),
    )
};

/// `tsl::BFCAllocator::AddTraceMe(std::string_view what, const void *address, long requested, long
/// bytes)`: TensorFlow and XLA call it for every chunk that the allocator allocates (`MemoryAllocation`)
/// or frees (`MemoryDeallocation`), whether or not tracing is active; the string is passed as
/// length and text. Source: TensorFlow 2.19; the wheels of JAX's plugin from 0.7 to 0.12. Host memory has such
/// allocators, too.
const CHUNK: Function = Function {
    address: A3,
    size: A5,
    stream: A1,
    ..hook(Framework::TensorFlow, Op::Tensor, Names(ADD_TRACE_ME, &[]))
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
        Names(
            "_ZN3tsl12BFCAllocator13DumpMemoryLogEm",
            &["_ZN3tsl12BFCAllocator13DumpMemoryLogEmNS_13AllocationEndE"],
        ),
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
        Names(
            "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
            &[
                "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE",
                "_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE",
            ],
        ),
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
        Names(
            "rmm::mr::pool_memory_resource::allocate",
            &["_ZN3rmm*2mr6detail25pool_memory_resource_impl19allocate_from_blockERKNS*_5blockEm"],
        ),
    )
};

/// `rmm::mr::detail::pool_memory_resource_impl::free_block(void *, size_t)`: a buffer goes back to its pool.
const FREED_BUFFER: Function = Function {
    address: A2,
    size: A3,
    ..hook(
        Framework::Rmm,
        Op::Tensor,
        Names(
            "rmm::mr::pool_memory_resource::deallocate",
            &["_ZN3rmm*2mr6detail25pool_memory_resource_impl10free_blockEPvm"],
        ),
    )
};

/// Blocks from before the tracing, which were found in the memory of the process. Never called.
const FOUND: Function = Function {
    kind: MemoryKind::Tensor,
    ..row(Layer::Framework, Op::SelfTest, Names("before attach", &[]))
};

pub(super) const FRAMEWORKS: &[Function] = &[
    USAGE,
    CHUNK,
    OUT_OF_MEMORY,
    XLA_CHUNK,
    XLA_OUT_OF_MEMORY,
    BUFFER,
    FREED_BUFFER,
    FOUND,
];
