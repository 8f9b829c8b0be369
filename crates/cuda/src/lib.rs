//! What CUDA, CUPTI and Nsight Systems are made of, as data: functions, kinds of memory, numbers.
//!
//! For: one table of the traced functions ([`FUNCTIONS`]), which the kernel side, the tests and the
//! documentation share; supporting one more function is one more row of it.
//! May use: nothing of gpuprobe.
//! Gives: rows and names. The kernel side receives each row as a recipe and finds it again through
//! the attach cookie, which is the row's number.

mod contexts;
mod copies;
pub mod document;
mod holders;
pub mod kinds;
mod launches;
mod memory;
mod memory_kind;
pub mod names;
pub mod nsys;
mod runtime_copies;
pub mod table;

pub use memory_kind::{Belongs, KindSet, MemoryKind, Space};
pub use table::FUNCTIONS;

/// The library that exports a function. The discriminants are those of `enum gp_layer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Layer {
    /// `libcudart`: knows the name that the user wrote, but programs often link it statically.
    Runtime = 0,
    /// `libcuda`: sees everything.
    Driver = 1,
}

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

/// What is reported; any of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Who holds memory.
    pub memleak: bool,
    /// Which kernels are launched.
    pub cudatrace: bool,
    /// What copies move, and how fast.
    pub bandwidth_util: bool,
    /// What the GPU itself did and when.
    pub activity: bool,
}

/// Where a launch has its grid and block. The discriminants are those of `enum gp_shape`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Shape {
    /// It is no launch of a kernel.
    None = 0,
    /// Arguments 1 to 5 and the first stack slot.
    Arguments = 1,
    /// Six numbers behind argument 0.
    Config = 2,
    /// Two structs of three, by value, from argument 1.
    Dim3 = 3,
    /// It is a copy of which only the addresses tell the direction: they are to be looked at soon.
    Addresses = 4,
    /// It is a batch of copies that `size` structs say the extents of (`CUDA_MEMCPY3D_BATCH_OP`).
    Cuboids = 5,
}

/// Between which memories a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    HostToHost,
    PeerToPeer,
    HostToArray,
    ArrayToHost,
    DeviceToArray,
    ArrayToDevice,
    ArrayToArray,
    /// Pages of managed memory that the driver moved.
    UnifiedHostToDevice,
    UnifiedDeviceToHost,
    UnifiedDeviceToDevice,
    /// Memory is set, not copied.
    Set,
    Unknown,
}

impl Direction {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostToDevice => "H2D",
            Self::DeviceToHost => "D2H",
            Self::DeviceToDevice => "D2D",
            Self::HostToHost => "H2H",
            Self::PeerToPeer => "P2P",
            Self::HostToArray => "H2A",
            Self::ArrayToHost => "A2H",
            Self::DeviceToArray => "D2A",
            Self::ArrayToDevice => "A2D",
            Self::ArrayToArray => "A2A",
            Self::UnifiedHostToDevice => "unified H2D",
            Self::UnifiedDeviceToHost => "unified D2H",
            Self::UnifiedDeviceToDevice => "unified D2D",
            Self::Set => "set",
            Self::Unknown => "unknown",
        }
    }

    /// Whether bytes cross the link between host and GPU.
    pub const fn crosses_link(self) -> bool {
        matches!(
            self,
            Self::HostToDevice | Self::DeviceToHost | Self::HostToArray | Self::ArrayToHost
        )
    }
}

/// How the direction of a copy is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The function always goes this way.
    Always(Direction),
    /// By a `cudaMemcpyKind`.
    ByKind,
    /// By the `CUmemorytype` of source and destination.
    ByTypes,
    /// By where the two addresses are.
    ByAddresses,
}

/// Where a value is at function entry. The discriminants are those of `enum gp_place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// The function has no such value.
    None = 0,
    /// Integer argument register, 0 to 5.
    Argument = 1,
    /// 8-byte stack slot above the return address.
    Stack = 2,
}

/// What to do with what is in the place. The discriminants are those of `enum gp_access`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// It is the value.
    Plain = 0,
    /// It is a pointer; the value is read from memory at an offset behind it.
    Behind = 1,
    /// It is a pointer; the value is a pointer at an offset behind it.
    Plus = 2,
}

/// A value that the kernel side reads at function entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Where it is.
    pub place: Place,
    /// Which register or slot.
    pub index: u8,
    /// 32 or 64: the upper half of a 32-bit argument is undefined.
    pub bits: u8,
    /// What to do with what is there.
    pub access: Access,
    /// The offset for that, in bytes.
    pub offset: u32,
}

impl Value {
    /// No value.
    pub const NONE: Self = Self {
        place: Place::None,
        index: 0,
        bits: 64,
        access: Access::Plain,
        offset: 0,
    };

    /// 64-bit integer argument `index` (0 is `rdi`).
    pub const fn argument(index: u8) -> Self {
        Self {
            place: Place::Argument,
            index,
            bits: 64,
            access: Access::Plain,
            offset: 0,
        }
    }

    /// 32-bit integer argument `index`.
    pub const fn argument32(index: u8) -> Self {
        Self::argument(index).bits32()
    }

    /// The same place, where only the lower 32 bits count.
    pub const fn bits32(self) -> Self {
        Self { bits: 32, ..self }
    }

    /// Stack slot `index` above the return address (0 is `[rsp+8]`).
    pub const fn stack(index: u8) -> Self {
        Self {
            place: Place::Stack,
            ..Self::argument(index)
        }
    }

    /// The value `offset` bytes behind the pointer that `self` describes.
    pub const fn behind(self, offset: u32) -> Self {
        Self {
            access: Access::Behind,
            offset,
            ..self
        }
    }

    /// The address `offset` bytes behind the pointer that `self` describes.
    pub const fn plus(self, offset: u32) -> Self {
        Self {
            access: Access::Plus,
            offset,
            ..self
        }
    }

    /// Whether the function has the value.
    pub const fn is_there(self) -> bool {
        !matches!(self.place, Place::None)
    }
}

/// One row of the table: a function and its variants, which take the same arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name in reports, and the first symbol looked for.
    pub symbol: &'static str,
    /// Further symbols with the same arguments (older versions, `_ptsz`, `_ptds`).
    pub variants: &'static [&'static str],
    /// The library that exports it.
    pub layer: Layer,
    /// What it does.
    pub op: Op,
    /// The kind of memory, for memory functions.
    pub kind: MemoryKind,
    /// Size in bytes.
    pub size: Value,
    /// The address or context that is handed in.
    pub address: Value,
    /// Pointer to where the result will be written.
    pub out: Value,
    /// Device index that is handed in; for a copy, its kind or the memory type of its source.
    pub device: Value,
    /// For a copy, the memory type of its destination.
    pub second: Value,
    /// The stream, or the other value that the operation needs.
    pub stream: Value,
    /// `size` is multiplied by these, if there (a height, a depth). For a batch, the first is its
    /// length.
    pub factors: [Value; 2],
    /// If one of these is not 0, `size` is not in bytes (but in elements of an array): the copy is
    /// counted as lost.
    pub unless: [Value; 2],
    /// Bytes per unit of `size`.
    pub scale: u8,
    /// Where a launch has its grid and block; for copies, whether their addresses matter.
    pub shape: Shape,
    /// How the direction of a copy is told.
    pub told: Told,
    /// A copy may go on after the call has returned.
    pub is_async: bool,
    /// `size` is where the call writes the size, or the pitch, by which `factors` are multiplied.
    pub size_at_return: bool,
    /// `stream` is where a name is.
    pub named: bool,
    /// The 64 bytes at `out` matter.
    pub out_bytes: bool,
    /// Further values that the operation needs.
    pub extra: [Value; EXTRA],
}

/// Number of further values that a call can be sent with.
pub const EXTRA: usize = 8;

impl Function {
    /// All symbols of the row.
    pub fn symbols(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.symbol).chain(self.variants.iter().copied())
    }

    /// Whether the ledger needs more of a call than its address and size.
    pub fn is_detailed(&self) -> bool {
        self.op.is_told()
            || matches!(self.op, Op::HandleRetain | Op::MapHandle)
            || self.extra.iter().any(|value| value.is_there())
    }
}

/// The function in row `row`, if there is one.
pub fn function(row: u16) -> Option<&'static Function> {
    FUNCTIONS.get(usize::from(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn symbols_are_unique() {
        let mut seen = HashSet::new();
        for function in FUNCTIONS {
            for symbol in function.symbols() {
                assert!(seen.insert(symbol), "{symbol} is in two rows");
            }
        }
    }

    #[test]
    fn layers_match_names() {
        for function in FUNCTIONS.iter().filter(|f| f.op != Op::SelfTest) {
            for symbol in function.symbols() {
                let runtime = symbol.starts_with("cuda");
                assert_eq!(runtime, function.layer == Layer::Runtime, "{symbol}");
            }
        }
    }

    #[test]
    fn every_operation_has_the_values_it_needs() {
        for function in FUNCTIONS {
            let has = Value::is_there;
            let (address, out, device) = match function.op {
                Op::Allocate => {
                    let computed = function.kind.space() == Space::Arrays;
                    let unknown = function.kind == MemoryKind::Imported;
                    let sized = has(function.size) || computed || unknown;
                    assert!(sized, "{}", function.symbol);
                    let handed_in = function.kind == MemoryKind::Registered;
                    (handed_in, !handed_in, false)
                }
                Op::Free | Op::ContextSet | Op::ContextPush => (true, false, false),
                Op::ContextCreate | Op::ContextRetain => (false, true, true),
                Op::ContextDevice => (has(function.address), true, false),
                Op::ContextGet | Op::DeviceGet | Op::DeviceCount => (false, true, false),
                Op::DeviceSet => (false, false, true),
                Op::SelfTest | Op::ContextPop => (false, false, false),
                Op::HandleCreate | Op::PoolCreate | Op::PoolOfDevice => (false, true, true),
                Op::HandleImport | Op::ShareOpen | Op::Reserve | Op::ModuleLoad => {
                    (false, true, false)
                }
                Op::HandleOther | Op::LibraryLoad => (false, true, false),
                Op::HandleRelease | Op::ShareClose | Op::Map | Op::Unmap | Op::Unreserve => {
                    (true, false, false)
                }
                Op::HandleRetain | Op::MapHandle | Op::ShareExport | Op::Symbol => {
                    (true, true, false)
                }
                Op::PoolAttribute | Op::GraphAllocate | Op::GraphNode | Op::GraphBuild => {
                    (true, true, false)
                }
                Op::ContextDestroy | Op::PoolDestroy | Op::PoolTrim | Op::GraphFree => {
                    (true, false, false)
                }
                Op::ModuleUnload | Op::GraphDestroy => (true, false, false),
                Op::DeviceReset => (false, false, function.layer == Layer::Driver),
                Op::PrimaryRelease => (false, false, true),
                Op::PoolSet => (true, false, true),
                Op::Launch | Op::GraphLaunch => {
                    assert!(has(function.stream), "{}", function.symbol);
                    (true, false, false)
                }
                Op::CaptureBegin | Op::CaptureEnd => {
                    assert!(has(function.stream), "{}", function.symbol);
                    (false, function.op == Op::CaptureEnd, false)
                }
                Op::EventRecord | Op::StreamWait | Op::StreamDestroy => {
                    assert!(has(function.stream), "{}", function.symbol);
                    (function.op != Op::StreamDestroy, false, false)
                }
                Op::KernelName => (true, true, false),
                Op::Copy | Op::CopyBatch => {
                    assert!(has(function.size), "{}", function.symbol);
                    let asynchronous = has(function.stream);
                    assert_eq!(asynchronous, function.is_async, "{}", function.symbol);
                    let kinds = match function.told {
                        Told::Always(_) | Told::ByAddresses => (false, false),
                        Told::ByKind => (true, false),
                        Told::ByTypes => (true, true),
                    };
                    assert_eq!(has(function.device), kinds.0, "{}", function.symbol);
                    assert_eq!(has(function.second), kinds.1, "{}", function.symbol);
                    (has(function.address), has(function.out), kinds.0)
                }
            };
            assert_eq!(has(function.address), address, "{}", function.symbol);
            assert_eq!(has(function.out), out, "{}", function.symbol);
            assert_eq!(has(function.device), device, "{}", function.symbol);
        }
    }
}
