//! What allocators of frameworks say of themselves: they take memory from CUDA in large pieces and hand
//! it out in small ones, which CUDA does not see.

use super::memory::{A0, A1, A2, A3};
use super::table::row;
use super::{Function, Layer, MemoryKind, Op, Value};

/// `c10::reportMemoryUsageToProfiler(void *address, bytes, allocated, reserved, c10::Device)`: PyTorch calls
/// it for each block that its caching allocator hands out or takes back (`bytes` is negative then), with
/// its own sums after that, whether anybody profiles or not. The two bytes of the device are its type and
/// its index. The three numbers are `int64_t` or `size_t` by version: 1.10 to 1.13 have `lll`, 2.0 on `lmm`.
/// Before 1.10 it has one number, and no address; that is another symbol.
const USAGE: Function = Function {
    variants: &[
        "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE",
        "_ZN3c1027reportMemoryUsageToProfilerEPvllmNS_6DeviceE",
        "_ZN3c1027reportMemoryUsageToProfilerEPvlmlNS_6DeviceE",
    ],
    address: A0,
    size: A1,
    out: A2,
    stream: A3,
    device: Value::argument32(4),
    kind: MemoryKind::Tensor,
    ..row(
        Layer::Framework,
        Op::Tensor,
        "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
    )
};

/// `tsl::BFCAllocator::AddTraceMe(std::string_view what, const void *address, long requested, long
/// bytes)`: TensorFlow calls it for each chunk that its allocator hands out (`MemoryAllocation`) or takes
/// back (`MemoryDeallocation`), whether anybody traces or not; the string is its length and its text. Read
/// from the code of TensorFlow 2.19. Memory of the host has such allocators, too.
const CHUNK: Function = Function {
    address: A3,
    size: Value::argument(5),
    stream: A1,
    kind: MemoryKind::Tensor,
    ..row(
        Layer::Framework,
        Op::Tensor,
        "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll",
    )
};

/// `c10::reportOutOfMemoryToProfiler(requested, allocated, reserved, c10::Device)`: PyTorch calls it once
/// its caching allocator has freed what it had cached and CUDA has refused again, right before it throws.
/// Since 1.12; the sums are `int64_t` there, and `size_t` from 2.0 on, and the request `int64_t`.
const OUT_OF_MEMORY: Function = Function {
    variants: &[
        "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE",
        "_ZN3c1027reportOutOfMemoryToProfilerEmmmNS_6DeviceE",
    ],
    size: A0,
    out: A1,
    stream: A2,
    device: Value::argument32(3),
    kind: MemoryKind::Tensor,
    ..row(
        Layer::Framework,
        Op::OutOfMemory,
        "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
    )
};

pub(super) const FRAMEWORKS: &[Function] = &[USAGE, CHUNK, OUT_OF_MEMORY];
