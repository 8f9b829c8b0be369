//! Functions for modules, pools and graphs, which hold memory besides plain allocations. All at the
//! driver layer, which the runtime calls for them.

use super::table::{A0, A1, A2, A3, A4, A5, Names, about, driver, of_kind, only, ptsz, writes};
use super::{EntryValue, Function, HandleKind, MemoryKind, Op};

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
        ..driver(Op::Symbol, only(symbol))
    }
}

/// Returns a new object or handle in argument 0.
const fn makes(op: Op, symbol: &'static str) -> Function {
    writes(driver(op, only(symbol)))
}

/// Operates on the object in argument 0.
const fn uses(op: Op, symbol: &'static str) -> Function {
    about(driver(op, only(symbol)))
}

const fn ends(kind: HandleKind, op: Op, symbol: &'static str) -> Function {
    of_kind(kind, uses(op, symbol))
}

const fn module(symbol: &'static str) -> Function {
    of_kind(HandleKind::Module, makes(Op::ModuleLoad, symbol))
}

const fn library(symbol: &'static str) -> Function {
    of_kind(HandleKind::Library, makes(Op::LibraryLoad, symbol))
}

/// Writes a 64-byte share handle of the memory at argument 1 to argument 0.
const fn exports(symbol: &'static str) -> Function {
    Function {
        address: A1,
        out_bytes: true,
        ..makes(Op::ShareExport, symbol)
    }
}

/// Returns the pool of a device in argument 0.
const fn pool_of_device(symbol: &'static str) -> Function {
    Function {
        device: A1.bits32(),
        ..makes(Op::PoolOfDevice, symbol)
    }
}

/// As [`pool_of_device`] in CUDA 13, which passes a location (its type, and its number at offset 4)
/// and the type of the memory: a device has a separate pool for managed memory.
const fn pool_of_location(symbol: &'static str) -> Function {
    Function {
        device: A1.behind(4).bits32(),
        stream: A1.behind(0),
        size: A2.bits32(),
        ..makes(Op::PoolOfDevice, symbol)
    }
}

/// Adds a node with the `CUgraphNodeParams` at `parameters`: the address to free is at offset 16;
/// the bytes to allocate are at offset 120, followed by the resulting address.
const fn node(names: Names, parameters: EntryValue) -> Function {
    Function {
        address: A1,
        size: parameters.behind(0).bits32(),
        stream: parameters.behind(16),
        out: parameters.plus(120),
        out_bytes: true,
        ..driver(Op::GraphNode, names)
    }
}

const fn builds(names: Names) -> Function {
    Function {
        address: A1,
        ..of_kind(HandleKind::Graph, writes(driver(Op::GraphBuild, names)))
    }
}

pub(super) const HOLDERS: &[Function] = &[
    exports("cuIpcGetMemHandle"),
    exports("cuMemPoolExportPointer"),
    // Modules and their variables.
    variable("cuModuleGetGlobal_v2"),
    variable("cuLibraryGetGlobal"),
    variable("cuLibraryGetManaged"),
    module("cuModuleLoad"),
    module("cuModuleLoadData"),
    module("cuModuleLoadDataEx"),
    module("cuModuleLoadFatBinary"),
    library("cuLibraryLoadData"),
    library("cuLibraryLoadFromFile"),
    ends(HandleKind::Module, Op::ModuleUnload, "cuModuleUnload"),
    ends(HandleKind::Library, Op::ModuleUnload, "cuLibraryUnload"),
    // Pools. `CUmemPoolProps` has the memory type at offset 0 and the location at 8: its type, and its
    // number in the upper half.
    Function {
        device: A1.behind(12).bits32(),
        stream: A1.behind(8),
        size: A1.behind(0).bits32(),
        ..of_kind(HandleKind::Pool, makes(Op::PoolCreate, "cuMemPoolCreate"))
    },
    ends(HandleKind::Pool, Op::PoolDestroy, "cuMemPoolDestroy"),
    Function {
        size: A1,
        ..uses(Op::PoolTrim, "cuMemPoolTrimTo")
    },
    Function {
        stream: A1.bits32(),
        ..uses(Op::PoolLimit, "cuMemPoolSetAttribute")
    },
    Function {
        stream: A1.bits32(),
        out: A2,
        ..uses(Op::PoolAttribute, "cuMemPoolGetAttribute")
    },
    pool_of_device("cuDeviceGetDefaultMemPool"),
    pool_of_device("cuDeviceGetMemPool"),
    pool_of_location("cuMemGetDefaultMemPool"),
    pool_of_location("cuMemGetMemPool"),
    Function {
        address: A1,
        device: A0.bits32(),
        ..driver(Op::PoolSet, only("cuDeviceSetMemPool"))
    },
    Function {
        address: A2,
        device: A0.behind(4).bits32(),
        stream: A0.behind(0),
        size: A1.bits32(),
        ..driver(Op::PoolSet, only("cuMemSetMemPool"))
    },
    // Graphs. `CUDA_MEM_ALLOC_NODE_PARAMS` has the size at offset 104, followed by the resulting
    // address.
    Function {
        kind: MemoryKind::Graph,
        address: A1,
        size: A4.behind(104),
        out: A4.plus(112),
        ..driver(Op::GraphAllocate, only("cuGraphAddMemAllocNode"))
    },
    Function {
        kind: MemoryKind::Graph,
        address: A1,
        stream: A4,
        ..driver(Op::GraphFree, only("cuGraphAddMemFreeNode"))
    },
    node(only("cuGraphAddNode"), A4),
    node(Names("cuGraphAddNode_v2", &["cuGraphAddNode_v3"]), A5),
    builds(Names(
        "cuGraphInstantiateWithFlags",
        &["cuGraphInstantiate", "cuGraphInstantiate_v2"],
    )),
    builds(ptsz!("cuGraphInstantiateWithParams")),
    ends(HandleKind::Graph, Op::GraphDestroy, "cuGraphExecDestroy"),
    uses(Op::GraphDestroy, "cuGraphDestroy"),
];
