//! What functions do.

use crate::{MemoryKind, Modes};

/// What a function does. The discriminants are those of `enum gp_op` in `bpf/abi.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// Never called by a program: proves that probes record.
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
    /// Makes the context `address` current, remembering the one below.
    ContextPush = 7,
    /// Makes the context below current.
    ContextPop = 8,
    /// Writes the current context to `out`.
    ContextGet = 9,
    /// Writes the device of context `address` (or of the current one) to `out`.
    ContextDevice = 10,
    /// Makes `device` current.
    DeviceSet = 11,
    /// Writes the current device to `out`.
    DeviceGet = 12,
    /// Writes the number of devices that the process can see to `out`.
    DeviceCount = 13,
    /// Launches the kernel `address` on `stream`.
    Launch = 14,
    /// Launches the executable graph `address` on `stream`.
    GraphLaunch = 15,
    /// Begins to capture `stream` into a graph.
    CaptureBegin = 16,
    /// Ends the capture of `stream`.
    CaptureEnd = 17,
    /// Writes the handle of the kernel named `address` to `out`.
    KernelName = 18,
    /// Unloads a module, after which handles are used again.
    ModuleUnload = 19,
    /// Copies or sets `size` bytes.
    Copy = 20,
    /// Copies as many bytes as an array of sizes adds up to.
    CopyBatch = 21,
    /// Takes `size` bytes of physical memory and writes a handle of it to `out`.
    HandleCreate = 22,
    /// Writes a handle of another process's or API's physical memory to `out`.
    HandleImport = 23,
    /// Writes one more reference to what is mapped at `address` to `out`.
    HandleRetain = 24,
    /// Drops a reference to the handle `address`.
    HandleRelease = 25,
    /// Maps `size` bytes of a handle (the first extra value) from an offset (the second) at
    /// `address`.
    Map = 26,
    /// Maps `size` bytes of the handle `address` and writes where to `out`.
    MapHandle = 27,
    /// Takes away the mappings in `size` bytes from `address`.
    Unmap = 28,
    /// Reserves `size` bytes of address space and writes where to `out`.
    Reserve = 29,
    /// Gives back `size` bytes of address space from `address`.
    Unreserve = 30,
    /// Opens the memory that 64 bytes (the extra values) name and writes where it is to `out`.
    ShareOpen = 31,
    /// Closes what was opened at `address`.
    ShareClose = 32,
    /// Writes 64 bytes to `out` by which other processes can open what is at `address`.
    ShareExport = 33,
    /// Writes the address of the variable named `stream` of module `address` to `out`, its size to
    /// `size`.
    Symbol = 34,
    /// Loads a module and writes it to `out`.
    ModuleLoad = 35,
    /// Destroys the context `address`.
    ContextDestroy = 36,
    /// Ends the primary context of `device`, or of the current device.
    DeviceReset = 37,
    /// Gives back one reference to the primary context of `device`; the last one ends it.
    PrimaryRelease = 38,
    /// Writes a new pool on `device` to `out`; `stream` is the type of its location, `size` that of
    /// its memory.
    PoolCreate = 39,
    /// Destroys the pool `address`, once nothing is allocated from it.
    PoolDestroy = 40,
    /// The pool `address` gives back what it does not use, down to `size` bytes.
    PoolTrim = 41,
    /// Writes the value of attribute `stream` of the pool `address` to `out`.
    PoolAttribute = 42,
    /// Writes a pool of `device` to `out`; `stream` and `size` are as for a new one.
    PoolOfDevice = 43,
    /// Makes the pool `address` that of `device`; `stream` and `size` are as for a new one.
    PoolSet = 44,
    /// Adds a node to the graph `address` that allocates `size` bytes, and writes where to `out`.
    GraphAllocate = 45,
    /// Adds a node to the graph `address` that frees `stream`.
    GraphFree = 46,
    /// Adds a node of type `size` to the graph `address`; `stream` and `out` are as its parameters
    /// have them.
    GraphNode = 47,
    /// Writes an executable form of the graph `address` to `out`.
    GraphBuild = 48,
    /// Destroys the graph `address`, executable or not.
    GraphDestroy = 49,
    /// Loads a library, which belongs to no context, and writes it to `out`.
    LibraryLoad = 50,
    /// Writes a handle to `out` that is mapped and released like memory, but is none.
    HandleOther = 51,
    /// Records the event `address` on `stream`.
    EventRecord = 52,
    /// Lets `stream` wait for the event `address`: it joins a capture by that.
    StreamWait = 53,
    /// Destroys `stream`.
    StreamDestroy = 54,
    /// A framework's allocator has handed out `size` bytes at `address`, or taken them back if that is
    /// negative; `out` are allocated on `device` then, and `stream` are held. One that does not tell of
    /// devices says by the length of a name, `stream`, what it has done. Seen at entry only.
    Tensor = 55,
    /// A framework's allocator gives up on `size` bytes of `device`, after its retries: `out` are
    /// allocated there then, and `stream` are held. Seen at entry only.
    OutOfMemory = 56,
}

impl Op {
    /// Whether it is a memory call: of nested ones, the outermost counts.
    pub const fn is_memory(self) -> bool {
        self.allocates() || self.frees() || self.is_about_mappings()
    }

    /// Whether it hands out memory, or a handle of memory.
    pub const fn allocates(self) -> bool {
        matches!(
            self,
            Self::Allocate | Self::HandleCreate | Self::HandleImport | Self::ShareOpen
        )
    }

    /// Whether it is what a framework's allocator says of itself.
    pub const fn is_of_framework(self) -> bool {
        matches!(self, Self::Tensor | Self::OutOfMemory)
    }

    /// Whether it gives memory back, or a reference to it.
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

    /// Whether the ledger is told of it although it is no memory call.
    pub const fn is_told(self) -> bool {
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

    /// Whether calls launch something: they are counted, at entry, in the kernel.
    pub const fn is_launch(self) -> bool {
        matches!(self, Self::Launch | Self::GraphLaunch)
    }

    /// Whether calls move or set memory.
    pub const fn is_copy(self) -> bool {
        matches!(self, Self::Copy | Self::CopyBatch)
    }

    /// Whether calls only ask which context or device is current. Frameworks ask all the time.
    pub const fn is_device_query(self) -> bool {
        matches!(
            self,
            Self::ContextGet | Self::ContextDevice | Self::DeviceGet
        )
    }

    /// Whether calls tell which device a thread is on, or a context.
    pub const fn is_about_devices(self) -> bool {
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

    /// Whether calls tell which streams are captured. They are seen at entry only.
    pub const fn is_about_streams(self) -> bool {
        matches!(
            self,
            Self::EventRecord | Self::StreamWait | Self::StreamDestroy
        )
    }

    /// Whether calls can be so frequent that they are probed at one layer only.
    pub const fn is_hot(self) -> bool {
        self.is_launch() || self.is_copy()
    }

    /// Whether `modes` need calls of this kind, of memory of this kind.
    pub const fn is_needed_by(self, modes: Modes, kind: MemoryKind) -> bool {
        if self.is_of_framework() {
            return modes.memleak;
        }
        if self.is_about_streams() {
            return modes.memleak || modes.cudatrace || modes.bandwidth_util;
        }
        let for_ledger = self.is_about_devices() || self.is_memory() || self.is_told();
        if modes.memleak && (for_ledger || matches!(self, Self::CaptureBegin)) {
            return true;
        }
        match self {
            // Where memory is, and on which device, tells the direction of copies.
            _ if self.is_about_devices() => modes.bandwidth_util,
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
