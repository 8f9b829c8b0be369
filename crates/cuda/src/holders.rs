//! Functions for modules, pools and graphs, which hold memory besides plain allocations. All at the
//! driver layer, which the runtime calls for them.

use super::memory::{A0, A1, A2, A3};
use super::table::driver;
use super::{EntryValue, Function, MemoryKind, Op};

const A4: EntryValue = EntryValue::argument(4);
const A5: EntryValue = EntryValue::argument(5);

/// Returns the address of a variable in argument 0 and its size in argument 1.
const fn variable(symbol: &'static str) -> Function {
    Function {
        kind: MemoryKind::Static,
        out: A0,
        size: A1,
        size_at_return: true,
        address: A2,
        stream: A3,
        named: true,
        ..driver(Op::Symbol, symbol)
    }
}

/// Returns a new object or handle in argument 0.
const fn writes(op: Op, symbol: &'static str) -> Function {
    Function {
        out: A0,
        ..driver(op, symbol)
    }
}

/// Operates on the object in argument 0.
const fn about(op: Op, symbol: &'static str) -> Function {
    Function {
        address: A0,
        ..driver(op, symbol)
    }
}

/// Writes a 64-byte share handle of the memory at argument 1 to argument 0.
const fn exports(symbol: &'static str) -> Function {
    Function {
        address: A1,
        out_bytes: true,
        ..writes(Op::ShareExport, symbol)
    }
}

/// Returns the pool of a device in argument 0.
const fn pool_of_device(symbol: &'static str) -> Function {
    Function {
        device: A1.bits32(),
        ..writes(Op::PoolOfDevice, symbol)
    }
}

/// As [`pool_of_device`] in CUDA 13, which passes a location (its type, and the device at offset 4)
/// and the type of the memory: a device has a separate pool for managed memory.
const fn pool_of_location(symbol: &'static str) -> Function {
    Function {
        device: A1.behind(4).bits32(),
        stream: A1.behind(0).bits32(),
        size: A2.bits32(),
        ..writes(Op::PoolOfDevice, symbol)
    }
}

/// Adds a node with the `CUgraphNodeParams` at `parameters`: the address to free is at offset 16;
/// the bytes to allocate are at offset 120, followed by the resulting address.
const fn node(symbol: &'static str, parameters: EntryValue) -> Function {
    Function {
        address: A1,
        size: parameters.behind(0).bits32(),
        stream: parameters.behind(16),
        out: parameters.plus(120),
        out_bytes: true,
        ..driver(Op::GraphNode, symbol)
    }
}

const fn builds(symbol: &'static str, variants: &'static [&'static str]) -> Function {
    Function {
        variants,
        address: A1,
        ..writes(Op::GraphBuild, symbol)
    }
}

pub(super) const HOLDERS: &[Function] = &[
    exports("cuIpcGetMemHandle"),
    exports("cuMemPoolExportPointer"),
    // Modules and their variables.
    variable("cuModuleGetGlobal_v2"),
    variable("cuLibraryGetGlobal"),
    variable("cuLibraryGetManaged"),
    writes(Op::ModuleLoad, "cuModuleLoad"),
    writes(Op::ModuleLoad, "cuModuleLoadData"),
    writes(Op::ModuleLoad, "cuModuleLoadDataEx"),
    writes(Op::ModuleLoad, "cuModuleLoadFatBinary"),
    writes(Op::LibraryLoad, "cuLibraryLoadData"),
    writes(Op::LibraryLoad, "cuLibraryLoadFromFile"),
    about(Op::ModuleUnload, "cuModuleUnload"),
    about(Op::ModuleUnload, "cuLibraryUnload"),
    // Pools. `CUmemPoolProps` has the memory type at offset 0, the location type at 8 and the
    // location number at 12.
    Function {
        device: A1.behind(12).bits32(),
        stream: A1.behind(8).bits32(),
        size: A1.behind(0).bits32(),
        ..writes(Op::PoolCreate, "cuMemPoolCreate")
    },
    about(Op::PoolDestroy, "cuMemPoolDestroy"),
    Function {
        size: A1,
        ..about(Op::PoolTrim, "cuMemPoolTrimTo")
    },
    Function {
        stream: A1.bits32(),
        out: A2,
        ..about(Op::PoolAttribute, "cuMemPoolGetAttribute")
    },
    pool_of_device("cuDeviceGetDefaultMemPool"),
    pool_of_device("cuDeviceGetMemPool"),
    pool_of_location("cuMemGetDefaultMemPool"),
    pool_of_location("cuMemGetMemPool"),
    Function {
        address: A1,
        device: A0.bits32(),
        ..driver(Op::PoolSet, "cuDeviceSetMemPool")
    },
    Function {
        address: A2,
        device: A0.behind(4).bits32(),
        stream: A0.behind(0).bits32(),
        size: A1.bits32(),
        ..driver(Op::PoolSet, "cuMemSetMemPool")
    },
    // Graphs. `CUDA_MEM_ALLOC_NODE_PARAMS` has the size at offset 104, followed by the resulting
    // address.
    Function {
        kind: MemoryKind::Graph,
        address: A1,
        size: A4.behind(104),
        out: A4.plus(112),
        ..driver(Op::GraphAllocate, "cuGraphAddMemAllocNode")
    },
    Function {
        kind: MemoryKind::Graph,
        address: A1,
        stream: A4,
        ..driver(Op::GraphFree, "cuGraphAddMemFreeNode")
    },
    node("cuGraphAddNode", A4),
    Function {
        variants: &["cuGraphAddNode_v3"],
        ..node("cuGraphAddNode_v2", A5)
    },
    builds(
        "cuGraphInstantiateWithFlags",
        &["cuGraphInstantiate", "cuGraphInstantiate_v2"],
    ),
    builds(
        "cuGraphInstantiateWithParams",
        &["cuGraphInstantiateWithParams_ptsz"],
    ),
    about(Op::GraphDestroy, "cuGraphExecDestroy"),
    about(Op::GraphDestroy, "cuGraphDestroy"),
];
