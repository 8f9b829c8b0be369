// Written by scripts/abi.py from bpf/abi.h.

/// Rows of the function table. A power of two, so that an attach cookie can be
/// masked into range for the verifier.
pub const MAX_ROWS: usize = 512;
/// Maximum number of extra values that a recipe sends with a call.
pub const EXTRA: usize = 8;

/// What frequent calls need of their recipe, in the attach cookie behind the row.
pub mod cookie {
    /// `address` is the second argument, not the first
    pub const SECOND: u64 = 1 << 16;
    /// GP_OP_OUT_OF_MEMORY
    pub const OUT_OF_MEMORY: u64 = 1 << 17;
    /// there is a `device`
    pub const WITH_DEVICE: u64 = 1 << 18;
    /// GP_OP_TENSOR whose recipe describes address and size
    pub const BLOCK: u64 = 1 << 19;
    /// GP_OP_BLOCK_REQUEST
    pub const REQUEST: u64 = 1 << 20;
    /// `address` is what the function returns
    pub const RESULT: u64 = 1 << 21;
}

/// cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY.
pub const OUT_OF_MEMORY: i32 = 2;

/// Operation of a traced function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Never called by programs: the self-test checks with it that an attached probe
    /// fires
    SelfTest = 1,
    /// Allocates `size` bytes and writes the address to `out`
    Allocate,
    /// Frees `address`
    Free,
    /// Creates a context on `device`, writes it to `out` and makes it current
    ContextCreate,
    /// Writes the primary context of `device` to `out`
    ContextRetain,
    /// Writes a context to `out` whose device and memory are those of `address`
    ContextPart,
    /// Makes the context `address` current
    ContextSet,
    /// Makes the context `address` current and pushes the previous one
    ContextPush,
    /// Pops the current context
    ContextPop,
    /// Writes the current context to `out`
    ContextGet,
    /// Writes the device of context `address` (or of the current one) to `out`
    ContextDevice,
    /// Makes `device` current
    DeviceSet,
    /// Writes the current device to `out`
    DeviceGet,
    /// Writes the number of visible devices to `out`
    DeviceCount,
    /// Launches the kernel with the handle `address` on `stream`
    Launch,
    /// Launches the executable graph `address` on `stream`
    GraphLaunch,
    /// Begins the capture of `stream` into a graph
    CaptureBegin,
    /// Ends the capture of `stream`
    CaptureEnd,
    /// Writes the handle of the kernel named `address` to `out`
    KernelName,
    /// Unloads a module, after which handles may be reused
    ModuleUnload,
    /// Copies or sets `size` bytes, times `factors`, from `out` to `address`; `device`
    /// is the kind of the copy
    Copy,
    /// Makes `factors[0]` copies: `size`, `out` and `address` are arrays
    CopyBatch,
    /// Allocates `size` bytes of physical memory and writes a handle to `out`
    HandleCreate,
    /// Writes a handle of another process's or API's physical memory to `out`
    HandleImport,
    /// Writes a new reference to the physical memory mapped at `address` to `out`
    HandleRetain,
    /// Drops a reference to the handle `address`
    HandleRelease,
    /// Maps `size` bytes of a handle (the first extra value) from an offset (the
    /// second) at `address`
    Map,
    /// Maps `size` bytes of the handle `address` and writes the address to `out`
    MapHandle,
    /// Unmaps `size` bytes at `address`
    Unmap,
    /// Reserves `size` bytes of address space and writes the address to `out`
    Reserve,
    /// Frees `size` bytes of reserved address space at `address`
    Unreserve,
    /// Opens the memory of a 64-byte share handle (the extra values) and writes its
    /// address to `out`
    ShareOpen,
    /// Closes the shared memory at `address`
    ShareClose,
    /// Writes a 64-byte share handle of the memory at `address` to `out`
    ShareExport,
    /// Writes the address of the variable named `stream` of module `address` to `out`,
    /// and its size to `size`
    Symbol,
    /// Loads a module and writes it to `out`
    ModuleLoad,
    /// Destroys the context `address`
    ContextDestroy,
    /// Resets the primary context of `device`, or of the current device
    DeviceReset,
    /// Releases one reference to the primary context of `device`; the last one destroys
    /// it
    PrimaryRelease,
    /// Writes a new pool on `device` to `out`; `stream` is the location, `size` the
    /// memory type
    PoolCreate,
    /// Destroys the pool `address` once all its allocations are freed
    PoolDestroy,
    /// Trims the pool `address`: unused memory is released, down to `size` bytes
    PoolTrim,
    /// Writes the value of attribute `stream` of the pool `address` to `out`
    PoolAttribute,
    /// Sets attribute `stream` of the pool `address`
    PoolLimit,
    /// Writes a pool of `device` to `out`; `stream` and `size` are as in
    /// GP_OP_POOL_CREATE
    PoolOfDevice,
    /// Makes `address` the current pool of `device`; `stream` and `size` are as in
    /// GP_OP_POOL_CREATE
    PoolSet,
    /// Adds a node that allocates `size` bytes to the graph `address`, and writes the
    /// address to `out`
    GraphAllocate,
    /// Adds a node that frees `stream` to the graph `address`
    GraphFree,
    /// Adds a node of type `size` to the graph `address`; `stream` and `out` are read
    /// from its parameters
    GraphNode,
    /// Instantiates the graph `address` and writes the executable graph to `out`
    GraphBuild,
    /// Destroys the graph `address`, executable or not
    GraphDestroy,
    /// Loads a library, which belongs to no context, and writes it to `out`
    LibraryLoad,
    /// Writes a handle to `out` that is mapped and released like memory but holds none
    HandleOther,
    /// Records the event `address` on `stream`
    EventRecord,
    /// Makes `stream` wait for the event `address`, by which it may join a capture
    StreamWait,
    /// Destroys `stream`
    StreamDestroy,
    /// Creates an object and writes its handle to `out`; if there is a `size`, so many
    ObjectCreate,
    /// Destroys the object `address`
    ObjectDestroy,
    /// A framework's allocator has allocated `size` bytes at `address` (freed them if
    /// `size` is negative); `out` bytes are then allocated on `device` and `stream`
    /// bytes reserved. An allocator without a device distinguishes the two by the
    /// length of a name, `stream`, or a function frees that has no `size`; `second` is
    /// added to `address`. Entry probe only; where `address` is the result, at the
    /// instruction that returns, as C++ exceptions do not pass a return probe
    Tensor,
    /// A framework's allocator raises an out-of-memory error for `size` bytes on
    /// `device`, after its retries; `out` bytes are allocated there and `stream` bytes
    /// reserved. Entry probe only
    OutOfMemory,
    /// Moves the GPU memory of the process `address` to the host; its caller may be any
    Checkpoint,
    /// Moves it back, to the same addresses
    Restore,
    /// Asks a framework's allocator for `size` bytes; the function's return is another
    /// row. Entry probe only
    BlockRequest,
}

impl Op {
    /// All, in order.
    pub const ALL: [Self; 63] = [Self::SelfTest, Self::Allocate, Self::Free, Self::ContextCreate, Self::ContextRetain, Self::ContextPart, Self::ContextSet, Self::ContextPush, Self::ContextPop, Self::ContextGet, Self::ContextDevice, Self::DeviceSet, Self::DeviceGet, Self::DeviceCount, Self::Launch, Self::GraphLaunch, Self::CaptureBegin, Self::CaptureEnd, Self::KernelName, Self::ModuleUnload, Self::Copy, Self::CopyBatch, Self::HandleCreate, Self::HandleImport, Self::HandleRetain, Self::HandleRelease, Self::Map, Self::MapHandle, Self::Unmap, Self::Reserve, Self::Unreserve, Self::ShareOpen, Self::ShareClose, Self::ShareExport, Self::Symbol, Self::ModuleLoad, Self::ContextDestroy, Self::DeviceReset, Self::PrimaryRelease, Self::PoolCreate, Self::PoolDestroy, Self::PoolTrim, Self::PoolAttribute, Self::PoolLimit, Self::PoolOfDevice, Self::PoolSet, Self::GraphAllocate, Self::GraphFree, Self::GraphNode, Self::GraphBuild, Self::GraphDestroy, Self::LibraryLoad, Self::HandleOther, Self::EventRecord, Self::StreamWait, Self::StreamDestroy, Self::ObjectCreate, Self::ObjectDestroy, Self::Tensor, Self::OutOfMemory, Self::Checkpoint, Self::Restore, Self::BlockRequest];
}

/// Location of a launch's grid and block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LaunchShape {
    None,
    /// arguments 1 to 5 and the first stack slot
    Arguments,
    /// six numbers behind argument 0
    Config,
    /// two three-element structs by value, from argument 1
    Dim3,
    /// Not a launch: a copy whose direction follows from its addresses, which must
    /// be resolved while the process lives.
    Addresses,
    /// not a launch: a batch of copies with one extent each
    Cuboids,
}

impl LaunchShape {
    /// All, in order.
    pub const ALL: [Self; 6] = [Self::None, Self::Arguments, Self::Config, Self::Dim3, Self::Addresses, Self::Cuboids];
}

/// Flags of a recipe, from the row's cuda::Function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Flag {
    /// the call writes the size to the location in `size`
    SizeAtReturn = 1,
    /// send a gp_detail
    Detailed = 2,
    /// send a gp_named; `stream` points to the name
    Named = 4,
    /// send the 64 bytes at `out` as extra values
    OutBytes = 8,
    /// send the call although it is not a memory call
    LedgerEvent = 16,
    /// take the call stack
    WithStack = 32,
    /// GP_NCCL_IN_PROGRESS is no error
    InProgress = 64,
}

impl Flag {
    /// All, in order.
    pub const ALL: [Self; 7] = [Self::SizeAtReturn, Self::Detailed, Self::Named, Self::OutBytes, Self::LedgerEvent, Self::WithStack, Self::InProgress];
}

/// Library that exports a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Layer {
    /// libcudart: has the name that the user wrote; often linked statically
    Runtime,
    /// libcuda: all CUDA calls go through it
    Driver,
    /// of a framework with its own allocator, for example PyTorch's libc10
    Framework,
    /// a library with handles of its own, for example libcublas
    Library,
}

impl Layer {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Runtime, Self::Driver, Self::Framework, Self::Library];
}

/// Place of a value at function entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ArgumentPlace {
    None,
    /// integer argument `index`, 0 to 5
    Argument,
    /// 8-byte stack slot `index` above the return address
    Stack,
    /// what the function returns
    Result = 4,
}

impl ArgumentPlace {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::None, Self::Argument, Self::Stack, Self::Result];
}

/// Interpretation of a place's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Access {
    Plain,
    /// a pointer: read memory at `offset` from it
    Behind,
    /// a pointer: add `offset`
    Plus,
    /// a pointer: read a pointer at the lower half of `offset` from it, and memory at
    /// the upper half from that
    Twice,
}

impl Access {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Behind, Self::Plus, Self::Twice];
}
