//! Operations of traced functions, as the function table names them.

use crate::{MemoryKind, Modes};

/// Operation of a function. The discriminants are those of `enum gp_op` in `bpf/abi.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// Never called by programs: the self-test checks with it that an attached probe fires.
    SelfTest = 1,
    /// Allocates `size` bytes and writes the address to `out`.
    Allocate = 2,
    /// Frees `address`.
    Free = 3,
    /// Creates a context on `device`, writes it to `out` and makes it current.
    ContextCreate = 4,
    /// Writes the primary context of `device` to `out`.
    ContextRetain = 5,
    /// Makes the context `address` current.
    ContextSet = 6,
    /// Makes the context `address` current and pushes the previous one.
    ContextPush = 7,
    /// Pops the current context.
    ContextPop = 8,
    /// Writes the current context to `out`.
    ContextGet = 9,
    /// Writes the device of context `address` (or of the current one) to `out`.
    ContextDevice = 10,
    /// Makes `device` current.
    DeviceSet = 11,
    /// Writes the current device to `out`.
    DeviceGet = 12,
    /// Writes the number of visible devices to `out`.
    DeviceCount = 13,
    /// Launches the kernel `address` on `stream`.
    Launch = 14,
    /// Launches the executable graph `address` on `stream`.
    GraphLaunch = 15,
    /// Begins the capture of `stream` into a graph.
    CaptureBegin = 16,
    /// Ends the capture of `stream`.
    CaptureEnd = 17,
    /// Writes the handle of the kernel named `address` to `out`.
    KernelName = 18,
    /// Unloads a module, after which handles may be reused.
    ModuleUnload = 19,
    /// Copies or sets `size` bytes.
    Copy = 20,
    /// Copies as many bytes as an array of sizes adds up to.
    CopyBatch = 21,
    /// Allocates `size` bytes of physical memory and writes a handle to `out`.
    HandleCreate = 22,
    /// Writes a handle of another process's or API's physical memory to `out`.
    HandleImport = 23,
    /// Writes a new reference to the physical memory mapped at `address` to `out`.
    HandleRetain = 24,
    /// Drops a reference to the handle `address`.
    HandleRelease = 25,
    /// Maps `size` bytes of a handle (the first extra value) from an offset (the second) at
    /// `address`.
    Map = 26,
    /// Maps `size` bytes of the handle `address` and writes the address to `out`.
    MapHandle = 27,
    /// Unmaps `size` bytes at `address`.
    Unmap = 28,
    /// Reserves `size` bytes of address space and writes the address to `out`.
    Reserve = 29,
    /// Frees `size` bytes of reserved address space at `address`.
    Unreserve = 30,
    /// Opens the memory of a 64-byte share handle (the extra values) and writes its address to
    /// `out`.
    ShareOpen = 31,
    /// Closes the shared memory at `address`.
    ShareClose = 32,
    /// Writes a 64-byte share handle of the memory at `address` to `out`.
    ShareExport = 33,
    /// Writes the address of the variable named `stream` of module `address` to `out`, and its size
    /// to `size`.
    Symbol = 34,
    /// Loads a module and writes it to `out`.
    ModuleLoad = 35,
    /// Destroys the context `address`.
    ContextDestroy = 36,
    /// Resets the primary context of `device`, or of the current device.
    DeviceReset = 37,
    /// Releases one reference to the primary context of `device`; the last one destroys it.
    PrimaryRelease = 38,
    /// Writes a new pool on `device` to `out`; `stream` is the location type, `size` the memory
    /// type.
    PoolCreate = 39,
    /// Destroys the pool `address` once all its allocations are freed.
    PoolDestroy = 40,
    /// Trims the pool `address`: unused memory is released, down to `size` bytes.
    PoolTrim = 41,
    /// Writes the value of attribute `stream` of the pool `address` to `out`.
    PoolAttribute = 42,
    /// Writes a pool of `device` to `out`; `stream` and `size` are as in [`Self::PoolCreate`].
    PoolOfDevice = 43,
    /// Makes `address` the current pool of `device`; `stream` and `size` are as in
    /// [`Self::PoolCreate`].
    PoolSet = 44,
    /// Adds a node that allocates `size` bytes to the graph `address`, and writes the address to
    /// `out`.
    GraphAllocate = 45,
    /// Adds a node that frees `stream` to the graph `address`.
    GraphFree = 46,
    /// Adds a node of type `size` to the graph `address`; `stream` and `out` are read from its
    /// parameters.
    GraphNode = 47,
    /// Instantiates the graph `address` and writes the executable graph to `out`.
    GraphBuild = 48,
    /// Destroys the graph `address`, executable or not.
    GraphDestroy = 49,
    /// Loads a library, which belongs to no context, and writes it to `out`.
    LibraryLoad = 50,
    /// Writes a handle to `out` that is mapped and released like memory but holds none.
    HandleOther = 51,
    /// Records the event `address` on `stream`.
    EventRecord = 52,
    /// Makes `stream` wait for the event `address`, by which it may join a capture.
    StreamWait = 53,
    /// Destroys `stream`.
    StreamDestroy = 54,
    /// A framework's allocator has allocated `size` bytes at `address` (freed them if `size` is
    /// negative); `out` bytes are then allocated on `device` and `stream` bytes reserved. An
    /// allocator without a device distinguishes the two by the length of a name, `stream`. Entry
    /// probe only.
    Tensor = 55,
    /// A framework's allocator raises an out-of-memory error for `size` bytes on `device`, after
    /// its retries; `out` bytes are allocated there and `stream` bytes reserved. Entry probe only.
    OutOfMemory = 56,
}

impl Op {
    /// Whether it is a memory call: of nested ones, the outermost is recorded.
    pub const fn is_memory(self) -> bool {
        self.allocates() || self.frees() || self.is_about_mappings()
    }

    /// Whether it allocates memory or a handle of memory.
    pub const fn allocates(self) -> bool {
        matches!(
            self,
            Self::Allocate | Self::HandleCreate | Self::HandleImport | Self::ShareOpen
        )
    }

    /// Whether it is a profiler hook of a framework's allocator.
    pub const fn is_of_framework(self) -> bool {
        matches!(self, Self::Tensor | Self::OutOfMemory)
    }

    /// Whether it frees memory or releases a reference to it.
    pub const fn frees(self) -> bool {
        matches!(self, Self::Free | Self::HandleRelease | Self::ShareClose)
    }

    const fn is_about_mappings(self) -> bool {
        matches!(
            self,
            Self::HandleRetain
                | Self::Map
                | Self::MapHandle
                | Self::Unmap
                | Self::Reserve
                | Self::Unreserve
        )
    }

    /// Whether the ledger needs the call although it is not a memory call.
    pub const fn is_ledger_event(self) -> bool {
        matches!(
            self,
            Self::ContextCreate
                | Self::ContextRetain
                | Self::DeviceCount
                | Self::GraphLaunch
                | Self::CaptureEnd
                | Self::ModuleUnload
                | Self::ShareExport
                | Self::Symbol
                | Self::ModuleLoad
                | Self::ContextDestroy
                | Self::DeviceReset
                | Self::PrimaryRelease
                | Self::PoolCreate
                | Self::PoolDestroy
                | Self::PoolTrim
                | Self::PoolAttribute
                | Self::PoolOfDevice
                | Self::PoolSet
                | Self::GraphAllocate
                | Self::GraphFree
                | Self::GraphNode
                | Self::GraphBuild
                | Self::GraphDestroy
                | Self::LibraryLoad
                | Self::HandleOther
        )
    }

    /// Whether it is a launch, which is counted in the kernel at entry.
    pub const fn is_launch(self) -> bool {
        matches!(self, Self::Launch | Self::GraphLaunch)
    }

    /// Whether it is a copy or memset.
    pub const fn is_copy(self) -> bool {
        matches!(self, Self::Copy | Self::CopyBatch)
    }

    /// Whether it only queries the current context or device. Frameworks call these very often.
    pub const fn is_device_query(self) -> bool {
        matches!(
            self,
            Self::ContextGet | Self::ContextDevice | Self::DeviceGet
        )
    }

    /// Whether it sets or reports the current device or context of a thread.
    pub const fn is_context_call(self) -> bool {
        matches!(
            self,
            Self::ContextCreate
                | Self::ContextRetain
                | Self::ContextSet
                | Self::ContextPush
                | Self::ContextPop
                | Self::ContextGet
                | Self::ContextDevice
                | Self::DeviceSet
                | Self::DeviceGet
                | Self::DeviceCount
        )
    }

    /// Whether it affects stream capture. Entry probe only.
    pub const fn is_capture_call(self) -> bool {
        matches!(
            self,
            Self::EventRecord | Self::StreamWait | Self::StreamDestroy
        )
    }

    /// Whether calls can be so frequent that only one layer is probed.
    pub const fn is_hot(self) -> bool {
        self.is_launch() || self.is_copy()
    }

    /// Whether `modes` need this operation on memory of this kind.
    pub const fn is_needed_by(self, modes: Modes, kind: MemoryKind) -> bool {
        if self.is_of_framework() {
            return modes.memleak;
        }
        if self.is_capture_call() {
            return modes.memleak || modes.cudatrace || modes.bandwidth_util;
        }
        let for_ledger = self.is_context_call() || self.is_memory() || self.is_ledger_event();
        if modes.memleak && (for_ledger || matches!(self, Self::CaptureBegin)) {
            return true;
        }
        match self {
            // The kind and device of memory determine the direction of copies.
            _ if self.is_context_call() => modes.bandwidth_util,
            Self::Allocate | Self::Free => modes.bandwidth_util && kind.is_at_device(),
            Self::Launch | Self::GraphLaunch | Self::KernelName | Self::ModuleUnload => {
                modes.cudatrace
            }
            Self::CaptureBegin | Self::CaptureEnd => modes.cudatrace || modes.bandwidth_util,
            Self::Copy | Self::CopyBatch => modes.bandwidth_util,
            _ => false,
        }
    }
}
