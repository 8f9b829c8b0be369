//! Functions of both layers that allocate and free memory.

use super::table::row;
use super::{EXTRA, EntryValue, Function, Layer, MemoryKind, Op};
use MemoryKind::{Array, Async, Device, Imported, Managed, Pinned, Pitched, Registered, Vmm};

pub(super) const NONE: EntryValue = EntryValue::NONE;
pub(super) const A0: EntryValue = EntryValue::argument(0);
pub(super) const A1: EntryValue = EntryValue::argument(1);
pub(super) const A2: EntryValue = EntryValue::argument(2);
pub(super) const A3: EntryValue = EntryValue::argument(3);

type Variants = &'static [&'static str];

const fn memory(layer: Layer, op: Op, kind: MemoryKind, symbol: &'static str) -> Function {
    Function {
        kind,
        ..row(layer, op, symbol)
    }
}

/// Allocates argument 1 bytes and returns the address in argument 0.
const fn allocates(
    layer: Layer,
    kind: MemoryKind,
    symbol: &'static str,
    variants: Variants,
) -> Function {
    Function {
        variants,
        out: A0,
        size: A1,
        ..memory(layer, Op::Allocate, kind, symbol)
    }
}

/// Frees argument 0.
const fn frees(
    layer: Layer,
    op: Op,
    kind: MemoryKind,
    symbol: &'static str,
    variants: Variants,
) -> Function {
    Function {
        variants,
        address: A0,
        ..memory(layer, op, kind, symbol)
    }
}

/// Allocates rows with a pitch that the call returns in `pitch`. The extra values are the requested
/// shape: a failed call returns no pitch.
const fn pitched(
    layer: Layer,
    symbol: &'static str,
    pitch: EntryValue,
    shape: [EntryValue; 3],
) -> Function {
    let [_, height, depth] = shape;
    Function {
        out: A0,
        size: pitch,
        size_at_return: true,
        factors: [height, depth],
        extra: extra(&shape),
        ..memory(layer, Op::Allocate, Pitched, symbol)
    }
}

/// Page-locks the host memory at argument 0.
const fn registers(layer: Layer, symbol: &'static str, variants: Variants) -> Function {
    Function {
        variants,
        address: A0,
        size: A1,
        ..memory(layer, Op::Allocate, Registered, symbol)
    }
}

/// Allocates in stream order, from the pool of the stream's device or from the pool in an argument.
/// The extra value is the pool.
const fn stream_ordered(
    layer: Layer,
    symbol: &'static str,
    variants: Variants,
    stream: EntryValue,
    pool: EntryValue,
) -> Function {
    Function {
        stream,
        extra: extra(&[pool]),
        ..allocates(layer, Async, symbol, variants)
    }
}

/// Allocates an array with a runtime descriptor; the extra values are those of
/// `gpuprobe_engine::arrays`.
const fn runtime_array(
    symbol: &'static str,
    shape: [EntryValue; 3],
    levels: EntryValue,
    flags: EntryValue,
) -> Function {
    let [width, height, depth] = shape;
    // cudaChannelFormatDesc: bits of the four channels, then their format.
    let (xy, zw, format) = (A1.behind(0), A1.behind(8), A1.behind(16).bits32());
    Function {
        out: A0,
        extra: [xy, zw, format, width, height, depth, levels, flags],
        ..memory(Layer::Runtime, Op::Allocate, Array, symbol)
    }
}

/// Allocates an array with a `CUDA_ARRAY_DESCRIPTOR` or `CUDA_ARRAY3D_DESCRIPTOR` of the driver;
/// the extra values are those of `gpuprobe_engine::arrays`.
const fn driver_array(symbol: &'static str, has_depth: bool, levels: EntryValue) -> Function {
    let format = if has_depth { 24 } else { 16 };
    let (depth, flags) = if has_depth {
        (A1.behind(16), A1.behind(32).bits32())
    } else {
        (NONE, NONE)
    };
    let (bits, channels) = (A1.behind(format).bits32(), A1.behind(format + 4).bits32());
    let (width, height) = (A1.behind(0), A1.behind(8));
    Function {
        out: A0,
        extra: [bits, channels, NONE, width, height, depth, levels, flags],
        ..memory(Layer::Driver, Op::Allocate, Array, symbol)
    }
}

/// Opens memory of another process by the 64-byte handle in these values.
const fn opens(layer: Layer, symbol: &'static str, variants: Variants) -> Function {
    Function {
        variants,
        out: A0,
        // The handle is passed by value, on the stack.
        extra: {
            let mut all = [NONE; EXTRA];
            let mut slot = 0;
            while slot < EXTRA {
                all[slot] = EntryValue::stack(slot as u8);
                slot += 1;
            }
            all
        },
        ..memory(layer, Op::ShareOpen, Imported, symbol)
    }
}

/// Imports another process's pool allocation by the 64-byte handle at argument 2.
const fn imports_pointer(layer: Layer, symbol: &'static str) -> Function {
    Function {
        out: A0,
        extra: {
            let mut all = [NONE; EXTRA];
            let mut word = 0;
            while word < EXTRA {
                all[word] = A2.behind(8 * word as u32);
                word += 1;
            }
            all
        },
        ..memory(layer, Op::Allocate, Imported, symbol)
    }
}

/// Imports external memory; its descriptor has the size at offset 24.
const fn imports_external(layer: Layer, symbol: &'static str) -> Function {
    Function {
        out: A0,
        size: A1.behind(24),
        ..memory(layer, Op::HandleImport, Imported, symbol)
    }
}

/// Maps a part of external memory; its descriptor has the size at offset 8.
const fn maps_external(layer: Layer, symbol: &'static str) -> Function {
    Function {
        out: A0,
        address: A1,
        size: A2.behind(8),
        ..memory(layer, Op::MapHandle, Imported, symbol)
    }
}

/// Maps external memory as an array, which takes no further memory.
const fn maps_external_array(layer: Layer, symbol: &'static str) -> Function {
    Function {
        out: A0,
        ..memory(layer, Op::Allocate, Array, symbol)
    }
}

const fn extra<const N: usize>(values: &[EntryValue; N]) -> [EntryValue; EXTRA] {
    let mut all = [NONE; EXTRA];
    let mut index = 0;
    while index < N {
        all[index] = values[index];
        index += 1;
    }
    all
}

/// `cudaExtent`, passed by value in the first stack slots.
const EXTENT: [EntryValue; 3] = [
    EntryValue::stack(0),
    EntryValue::stack(1),
    EntryValue::stack(2),
];
const RUNTIME: Layer = Layer::Runtime;
const DRIVER: Layer = Layer::Driver;

pub(super) const MEMORY: &[Function] = &[
    allocates(RUNTIME, Device, "cudaMalloc", &[]),
    frees(RUNTIME, Op::Free, Device, "cudaFree", &[]),
    allocates(DRIVER, Device, "cuMemAlloc_v2", &[]),
    frees(DRIVER, Op::Free, Device, "cuMemFree_v2", &[]),
    pitched(RUNTIME, "cudaMallocPitch", A1, [A2, A3, NONE]),
    pitched(RUNTIME, "cudaMalloc3D", A0.plus(8), EXTENT),
    pitched(DRIVER, "cuMemAllocPitch_v2", A1, [A2, A3, NONE]),
    allocates(RUNTIME, Managed, "cudaMallocManaged", &[]),
    allocates(DRIVER, Managed, "cuMemAllocManaged", &[]),
    // Total of host memory.
    allocates(RUNTIME, Pinned, "cudaMallocHost", &[]),
    allocates(RUNTIME, Pinned, "cudaHostAlloc", &[]),
    frees(RUNTIME, Op::Free, Pinned, "cudaFreeHost", &[]),
    allocates(DRIVER, Pinned, "cuMemAllocHost_v2", &[]),
    allocates(DRIVER, Pinned, "cuMemHostAlloc", &[]),
    frees(DRIVER, Op::Free, Pinned, "cuMemFreeHost", &[]),
    registers(RUNTIME, "cudaHostRegister", &[]),
    frees(RUNTIME, Op::Free, Registered, "cudaHostUnregister", &[]),
    registers(DRIVER, "cuMemHostRegister_v2", &["cuMemHostRegister"]),
    frees(DRIVER, Op::Free, Registered, "cuMemHostUnregister", &[]),
    // Arrays.
    runtime_array(
        "cudaMallocArray",
        [A2, A3, NONE],
        NONE,
        EntryValue::argument32(4),
    ),
    runtime_array("cudaMalloc3DArray", EXTENT, NONE, A2.bits32()),
    runtime_array("cudaMallocMipmappedArray", EXTENT, A2.bits32(), A3.bits32()),
    frees(RUNTIME, Op::Free, Array, "cudaFreeArray", &[]),
    frees(RUNTIME, Op::Free, Array, "cudaFreeMipmappedArray", &[]),
    driver_array("cuArrayCreate_v2", false, NONE),
    driver_array("cuArray3DCreate_v2", true, NONE),
    driver_array("cuMipmappedArrayCreate", true, A2.bits32()),
    frees(DRIVER, Op::Free, Array, "cuArrayDestroy", &[]),
    frees(DRIVER, Op::Free, Array, "cuMipmappedArrayDestroy", &[]),
    // Stream-ordered memory.
    stream_ordered(
        RUNTIME,
        "cudaMallocAsync",
        &["cudaMallocAsync_ptsz"],
        A2,
        NONE,
    ),
    stream_ordered(
        RUNTIME,
        "cudaMallocFromPoolAsync",
        &["cudaMallocFromPoolAsync_ptsz"],
        A3,
        A2,
    ),
    Function {
        stream: A1,
        ..frees(
            RUNTIME,
            Op::Free,
            Async,
            "cudaFreeAsync",
            &["cudaFreeAsync_ptsz"],
        )
    },
    stream_ordered(
        DRIVER,
        "cuMemAllocAsync",
        &["cuMemAllocAsync_ptsz"],
        A2,
        NONE,
    ),
    stream_ordered(
        DRIVER,
        "cuMemAllocFromPoolAsync",
        &["cuMemAllocFromPoolAsync_ptsz"],
        A3,
        A2,
    ),
    Function {
        stream: A1,
        ..frees(
            DRIVER,
            Op::Free,
            Async,
            "cuMemFreeAsync",
            &["cuMemFreeAsync_ptsz"],
        )
    },
    // Virtual memory management, which only the driver has. `CUmemAllocationProp` has the location
    // type at offset 8 and the location number at 12.
    Function {
        device: A2.behind(12).bits32(),
        extra: extra(&[A2.behind(8).bits32()]),
        ..Function {
            op: Op::HandleCreate,
            ..allocates(DRIVER, Vmm, "cuMemCreate", &[])
        }
    },
    frees(DRIVER, Op::HandleRelease, Vmm, "cuMemRelease", &[]),
    Function {
        address: A0,
        size: A1,
        extra: extra(&[A3, A2]),
        ..memory(DRIVER, Op::Map, Vmm, "cuMemMap")
    },
    Function {
        size: A1,
        ..frees(DRIVER, Op::Unmap, Vmm, "cuMemUnmap", &[])
    },
    Function {
        op: Op::Reserve,
        ..allocates(DRIVER, Vmm, "cuMemAddressReserve", &[])
    },
    Function {
        size: A1,
        ..frees(DRIVER, Op::Unreserve, Vmm, "cuMemAddressFree", &[])
    },
    Function {
        address: A1,
        out: A0,
        ..memory(DRIVER, Op::HandleRetain, Vmm, "cuMemRetainAllocationHandle")
    },
    Function {
        out: A0,
        ..memory(
            DRIVER,
            Op::HandleImport,
            Imported,
            "cuMemImportFromShareableHandle",
        )
    },
    Function {
        out: A0,
        ..memory(DRIVER, Op::HandleOther, Imported, "cuMulticastCreate")
    },
    // Memory of other processes and other APIs.
    opens(RUNTIME, "cudaIpcOpenMemHandle", &[]),
    frees(
        RUNTIME,
        Op::ShareClose,
        Imported,
        "cudaIpcCloseMemHandle",
        &[],
    ),
    opens(DRIVER, "cuIpcOpenMemHandle_v2", &["cuIpcOpenMemHandle"]),
    frees(DRIVER, Op::ShareClose, Imported, "cuIpcCloseMemHandle", &[]),
    imports_pointer(RUNTIME, "cudaMemPoolImportPointer"),
    imports_pointer(DRIVER, "cuMemPoolImportPointer"),
    imports_external(RUNTIME, "cudaImportExternalMemory"),
    maps_external(RUNTIME, "cudaExternalMemoryGetMappedBuffer"),
    maps_external_array(RUNTIME, "cudaExternalMemoryGetMappedMipmappedArray"),
    frees(
        RUNTIME,
        Op::HandleRelease,
        Imported,
        "cudaDestroyExternalMemory",
        &[],
    ),
    imports_external(DRIVER, "cuImportExternalMemory"),
    maps_external(DRIVER, "cuExternalMemoryGetMappedBuffer"),
    maps_external_array(DRIVER, "cuExternalMemoryGetMappedMipmappedArray"),
    frees(
        DRIVER,
        Op::HandleRelease,
        Imported,
        "cuDestroyExternalMemory",
        &[],
    ),
];
