//! The traced CUDA functions, as data.
//!
//! [`table::FUNCTIONS`] drives attaching, `doctor`, the tests and the documentation; the kernel
//! side receives each row as a recipe and finds it again through the attach cookie, which is the
//! row's number. Supporting one more function is one more row.

mod copies;
mod launches;
mod runtime_copies;
pub mod table;

pub use table::FUNCTIONS;

/// The library that exports a function. The discriminants are those of `enum gp_layer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
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
}

impl Op {
    /// Whether the ledger is told about calls of this kind.
    pub const fn is_memory(self) -> bool {
        matches!(self, Self::Allocate | Self::Free)
    }

    /// Whether calls are only counted, at entry, in the kernel.
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

    /// Whether calls can be so frequent that they are probed at one layer only.
    pub const fn is_hot(self) -> bool {
        self.is_launch() || self.is_copy()
    }

    /// Whether `modes` need calls of this kind.
    pub const fn is_needed_by(self, modes: Modes) -> bool {
        if self.is_about_devices() {
            return modes.memleak;
        }
        match self {
            Self::Allocate | Self::Free => modes.memleak || modes.bandwidth_util,
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

/// The kind of memory that a function hands out or takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Plain device memory.
    Device,
}

impl MemoryKind {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
        }
    }
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

/// A value that the kernel side reads at function entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Where it is.
    pub place: Place,
    /// Which register or slot.
    pub index: u8,
    /// 32 or 64: the upper half of a 32-bit argument is undefined.
    pub bits: u8,
    /// If set, the place holds a pointer and the value is this many bytes behind it.
    pub behind: Option<u32>,
}

impl Value {
    /// No value.
    pub const NONE: Self = Self {
        place: Place::None,
        index: 0,
        bits: 64,
        behind: None,
    };

    /// 64-bit integer argument `index` (0 is `rdi`).
    pub const fn argument(index: u8) -> Self {
        Self {
            place: Place::Argument,
            index,
            bits: 64,
            behind: None,
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
            behind: Some(offset),
            ..self
        }
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
    /// The stream.
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
}

impl Function {
    /// All symbols of the row.
    pub fn symbols(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.symbol).chain(self.variants.iter().copied())
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
            let has = |value: Value| value.place != Place::None;
            let (address, out, device) = match function.op {
                Op::Allocate => {
                    assert!(has(function.size), "{}", function.symbol);
                    (false, true, false)
                }
                Op::Free | Op::ContextSet | Op::ContextPush => (true, false, false),
                Op::ContextCreate | Op::ContextRetain => (false, true, true),
                Op::ContextDevice => (has(function.address), true, false),
                Op::ContextGet | Op::DeviceGet | Op::DeviceCount => (false, true, false),
                Op::DeviceSet => (false, false, true),
                Op::SelfTest | Op::ContextPop | Op::ModuleUnload => (false, false, false),
                Op::Launch | Op::GraphLaunch => {
                    assert!(has(function.stream), "{}", function.symbol);
                    (true, false, false)
                }
                Op::CaptureBegin | Op::CaptureEnd => {
                    assert!(has(function.stream), "{}", function.symbol);
                    (false, false, false)
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
