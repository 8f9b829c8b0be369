//! Functions of both layers that allocate and free memory.

use super::table::{
    A0, A1, A2, A3, A4, DRIVER, NONE, Names, RUNTIME, S0, S1, S2, about, only, ptsz, row, v2,
    writes,
};
use super::{EXTRA, EntryValue, Function, Layer, MemoryKind, Op};
use MemoryKind::{Array, Async, Device, Imported, Managed, Pinned, Pitched, Registered, Vmm};

const fn memory(layer: Layer, op: Op, kind: MemoryKind, names: Names) -> Function {
    Function {
        kind,
        ..row(layer, op, names)
    }
}

/// Allocates argument 1 bytes and returns the address in argument 0.
const fn allocates(layer: Layer, kind: MemoryKind, names: Names) -> Function {
    Function {
        out: A0,
        size: A1,
        ..memory(layer, Op::Allocate, kind, names)
    }
}

/// Frees argument 0.
const fn frees(layer: Layer, kind: MemoryKind, names: Names) -> Function {
    Function {
        address: A0,
        ..memory(layer, Op::Free, kind, names)
    }
}

/// Drops a reference to the handle in argument 0.
const fn releases(layer: Layer, kind: MemoryKind, symbol: &'static str) -> Function {
    about(memory(layer, Op::HandleRelease, kind, only(symbol)))
}

/// Closes the memory of another process at argument 0.
const fn closes(layer: Layer, symbol: &'static str) -> Function {
    about(memory(layer, Op::ShareClose, Imported, only(symbol)))
}

/// A function of virtual memory management, which only the driver has.
const fn virtual_memory(op: Op, symbol: &'static str) -> Function {
    memory(DRIVER, op, Vmm, only(symbol))
}

/// A function for memory of other processes and APIs, which only the driver has.
const fn imported(op: Op, symbol: &'static str) -> Function {
    memory(DRIVER, op, Imported, only(symbol))
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
        ..memory(layer, Op::Allocate, Pitched, only(symbol))
    }
}

/// Page-locks the host memory at argument 0.
const fn registers(layer: Layer, names: Names) -> Function {
    Function {
        address: A0,
        size: A1,
        ..memory(layer, Op::Allocate, Registered, names)
    }
}

/// Allocates in stream order, from the pool of the stream's device or from the pool in an argument.
/// The extra value is the pool.
const fn stream_ordered(
    layer: Layer,
    names: Names,
    stream: EntryValue,
    pool: EntryValue,
) -> Function {
    Function {
        stream,
        extra: extra(&[pool]),
        ..allocates(layer, Async, names)
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
        ..memory(RUNTIME, Op::Allocate, Array, only(symbol))
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
        ..memory(DRIVER, Op::Allocate, Array, only(symbol))
    }
}

/// The words of a 64-byte handle, at `pointer` or on the stack.
const fn handle(pointer: Option<EntryValue>) -> [EntryValue; EXTRA] {
    let mut all = [NONE; EXTRA];
    let mut word = 0;
    while word < EXTRA {
        all[word] = match pointer {
            Some(pointer) => pointer.behind(8 * word as u32),
            None => EntryValue::stack(word as u8),
        };
        word += 1;
    }
    all
}

/// Opens memory of another process by the 64-byte handle in these values.
const fn opens(layer: Layer, names: Names) -> Function {
    Function {
        out: A0,
        // The handle is passed by value, on the stack.
        extra: handle(None),
        ..memory(layer, Op::ShareOpen, Imported, names)
    }
}

/// Imports another process's pool allocation by the 64-byte handle at argument 2.
const fn imports_pointer(layer: Layer, symbol: &'static str) -> Function {
    Function {
        out: A0,
        extra: handle(Some(A2)),
        ..memory(layer, Op::Allocate, Imported, only(symbol))
    }
}

/// Imports external memory; its descriptor has the size at offset 24.
const fn imports_external(layer: Layer, symbol: &'static str) -> Function {
    Function {
        out: A0,
        size: A1.behind(24),
        ..memory(layer, Op::HandleImport, Imported, only(symbol))
    }
}

/// Maps a part of external memory; its descriptor has the size at offset 8.
const fn maps_external(layer: Layer, symbol: &'static str) -> Function {
    Function {
        out: A0,
        address: A1,
        size: A2.behind(8),
        ..memory(layer, Op::MapHandle, Imported, only(symbol))
    }
}

/// Maps external memory as an array, which takes no further memory.
const fn maps_external_array(layer: Layer, symbol: &'static str) -> Function {
    Function {
        out: A0,
        ..memory(layer, Op::Allocate, Array, only(symbol))
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
const EXTENT: [EntryValue; 3] = [S0, S1, S2];

pub(super) const MEMORY: &[Function] = &[
    allocates(RUNTIME, Device, only("cudaMalloc")),
    frees(RUNTIME, Device, only("cudaFree")),
    allocates(DRIVER, Device, only("cuMemAlloc_v2")),
    frees(DRIVER, Device, only("cuMemFree_v2")),
    pitched(RUNTIME, "cudaMallocPitch", A1, [A2, A3, NONE]),
    pitched(RUNTIME, "cudaMalloc3D", A0.plus(8), EXTENT),
    pitched(DRIVER, "cuMemAllocPitch_v2", A1, [A2, A3, NONE]),
    allocates(RUNTIME, Managed, only("cudaMallocManaged")),
    allocates(DRIVER, Managed, only("cuMemAllocManaged")),
    // Total of host memory.
    allocates(RUNTIME, Pinned, only("cudaMallocHost")),
    allocates(RUNTIME, Pinned, only("cudaHostAlloc")),
    frees(RUNTIME, Pinned, only("cudaFreeHost")),
    allocates(DRIVER, Pinned, only("cuMemAllocHost_v2")),
    allocates(DRIVER, Pinned, only("cuMemHostAlloc")),
    frees(DRIVER, Pinned, only("cuMemFreeHost")),
    registers(RUNTIME, only("cudaHostRegister")),
    frees(RUNTIME, Registered, only("cudaHostUnregister")),
    registers(DRIVER, v2!("cuMemHostRegister")),
    frees(DRIVER, Registered, only("cuMemHostUnregister")),
    // Arrays.
    runtime_array("cudaMallocArray", [A2, A3, NONE], NONE, A4.bits32()),
    runtime_array("cudaMalloc3DArray", EXTENT, NONE, A2.bits32()),
    runtime_array("cudaMallocMipmappedArray", EXTENT, A2.bits32(), A3.bits32()),
    frees(RUNTIME, Array, only("cudaFreeArray")),
    frees(RUNTIME, Array, only("cudaFreeMipmappedArray")),
    driver_array("cuArrayCreate_v2", false, NONE),
    driver_array("cuArray3DCreate_v2", true, NONE),
    driver_array("cuMipmappedArrayCreate", true, A2.bits32()),
    frees(DRIVER, Array, only("cuArrayDestroy")),
    frees(DRIVER, Array, only("cuMipmappedArrayDestroy")),
    // Stream-ordered memory.
    stream_ordered(RUNTIME, ptsz!("cudaMallocAsync"), A2, NONE),
    stream_ordered(RUNTIME, ptsz!("cudaMallocFromPoolAsync"), A3, A2),
    Function {
        stream: A1,
        ..frees(RUNTIME, Async, ptsz!("cudaFreeAsync"))
    },
    stream_ordered(DRIVER, ptsz!("cuMemAllocAsync"), A2, NONE),
    stream_ordered(DRIVER, ptsz!("cuMemAllocFromPoolAsync"), A3, A2),
    Function {
        stream: A1,
        ..frees(DRIVER, Async, ptsz!("cuMemFreeAsync"))
    },
    // Virtual memory management. `CUmemAllocationProp` has the location
    // at offset 8: its type, and its number in the upper half.
    Function {
        device: A2.behind(12).bits32(),
        extra: extra(&[A2.behind(8)]),
        size: A1,
        ..writes(virtual_memory(Op::HandleCreate, "cuMemCreate"))
    },
    releases(DRIVER, Vmm, "cuMemRelease"),
    Function {
        size: A1,
        extra: extra(&[A3, A2]),
        ..about(virtual_memory(Op::Map, "cuMemMap"))
    },
    Function {
        size: A1,
        ..about(virtual_memory(Op::Unmap, "cuMemUnmap"))
    },
    Function {
        size: A1,
        ..writes(virtual_memory(Op::Reserve, "cuMemAddressReserve"))
    },
    Function {
        size: A1,
        ..about(virtual_memory(Op::Unreserve, "cuMemAddressFree"))
    },
    Function {
        address: A1,
        out: A0,
        ..virtual_memory(Op::HandleRetain, "cuMemRetainAllocationHandle")
    },
    writes(imported(Op::HandleImport, "cuMemImportFromShareableHandle")),
    writes(imported(Op::HandleOther, "cuMulticastCreate")),
    // Memory of other processes and other APIs.
    opens(RUNTIME, only("cudaIpcOpenMemHandle")),
    closes(RUNTIME, "cudaIpcCloseMemHandle"),
    opens(DRIVER, v2!("cuIpcOpenMemHandle")),
    closes(DRIVER, "cuIpcCloseMemHandle"),
    imports_pointer(RUNTIME, "cudaMemPoolImportPointer"),
    imports_pointer(DRIVER, "cuMemPoolImportPointer"),
    imports_external(RUNTIME, "cudaImportExternalMemory"),
    maps_external(RUNTIME, "cudaExternalMemoryGetMappedBuffer"),
    maps_external_array(RUNTIME, "cudaExternalMemoryGetMappedMipmappedArray"),
    releases(RUNTIME, Imported, "cudaDestroyExternalMemory"),
    imports_external(DRIVER, "cuImportExternalMemory"),
    maps_external(DRIVER, "cuExternalMemoryGetMappedBuffer"),
    maps_external_array(DRIVER, "cuExternalMemoryGetMappedMipmappedArray"),
    releases(DRIVER, Imported, "cuDestroyExternalMemory"),
];
