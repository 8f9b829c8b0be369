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
mod frameworks;
mod holders;
pub mod kinds;
mod launches;
mod memory;
mod memory_kind;
pub mod names;
pub mod nsys;
mod op;
mod runtime_copies;
pub mod table;
mod value;

pub use memory_kind::{Belongs, KindSet, MemoryKind, Space};
pub use op::Op;
pub use table::FUNCTIONS;
pub use value::{Access, Place, Value};

/// The library that exports a function. The discriminants are those of `enum gp_layer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Layer {
    /// `libcudart`: knows the name that the user wrote, but programs often link it statically.
    Runtime = 0,
    /// `libcuda`: sees everything.
    Driver = 1,
    /// A library of a framework that has an allocator of its own: PyTorch's `libc10`.
    Framework = 2,
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
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::HostToDevice,
        Self::DeviceToHost,
        Self::DeviceToDevice,
        Self::HostToHost,
        Self::PeerToPeer,
        Self::HostToArray,
        Self::ArrayToHost,
        Self::DeviceToArray,
        Self::ArrayToDevice,
        Self::ArrayToArray,
        Self::UnifiedHostToDevice,
        Self::UnifiedDeviceToHost,
        Self::UnifiedDeviceToDevice,
        Self::Set,
        Self::Unknown,
    ];

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

/// `cudaErrorMemoryAllocation` and `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: i32 = 2;

/// Number of further values that a call can be sent with.
pub const EXTRA: usize = 8;

impl Function {
    /// All symbols of the row.
    pub fn symbols(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.symbol).chain(self.variants.iter().copied())
    }

    /// What reports call it.
    pub const fn name(&self) -> &'static str {
        match self.op {
            Op::Tensor if self.device.is_there() => "c10::CachingAllocator",
            Op::OutOfMemory => "c10::CachingAllocator",
            Op::Tensor => "tsl::BFCAllocator",
            _ => self.symbol,
        }
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
                let framework = symbol.starts_with("_ZN");
                assert_eq!(framework, function.layer == Layer::Framework, "{symbol}");
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
                // Who tells of devices has sums, too.
                Op::Tensor => (true, has(function.device), has(function.device)),
                Op::OutOfMemory => (false, true, true),
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
