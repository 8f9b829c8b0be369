//! Profiler hooks of frameworks' caching allocators, which reserve memory from CUDA in large pieces
//! and allocate small blocks from it that CUDA does not see.

use super::table::{A0, A1, A2, A3, A4, A5, Names, row};
use super::{Function, Layer, MemoryKind, Op};

const fn hook(op: Op, names: Names) -> Function {
    Function {
        kind: MemoryKind::Tensor,
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
/// bytes)`: TensorFlow calls it for every chunk that its allocator allocates (`MemoryAllocation`)
/// or frees (`MemoryDeallocation`), whether or not tracing is active; the string is passed as
/// length and text. Source: TensorFlow 2.19. Host memory has such allocators, too.
const CHUNK: Function = Function {
    address: A3,
    size: A5,
    stream: A1,
    ..hook(
        Op::Tensor,
        Names(
            "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll",
            &[],
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

pub(super) const FRAMEWORKS: &[Function] = &[USAGE, CHUNK, OUT_OF_MEMORY];
