//! CUDA, CUPTI and Nsight Systems as data: functions, memory kinds, constants.
//!
//! For: every side that has to agree on these: BPF programs, engine, tests, documentation.
//! May use: no other crate of gpuprobe.
//! Gives: [`FUNCTIONS`], whose row numbers are the attach cookies (a new function is a new row); names.

/// Defines an enum by the names of its values.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* pub enum $type:ident {
        $($(#[$meaning:meta])* $value:ident = $name:literal,)+
    }) => {
        $(#[$about])*
        pub enum $type {
            $($(#[$meaning])* $value,)+
        }

        impl $type {
            /// Number of values.
            pub const COUNT: usize = [$($name),+].len();

            /// All values, in the order of reports.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$value),+];

            /// Name used in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }
    };
}

mod abi;
mod contexts;
mod copies;
mod frameworks;
mod handle_kind;
mod holders;
pub mod kinds;
mod launches;
mod memory;
mod memory_kind;
pub mod names;
pub mod nsys;
mod objects;
mod op;
mod runtime_copies;
pub mod table;
mod value;

use clap::{ArgGroup, Args};

pub use abi::*;
pub use frameworks::Framework;
pub use handle_kind::HandleKind;
pub use memory_kind::{AT_LOCALITY_DOMAIN, AddressSpace, Belongs, KindSet, MemoryKind};
pub use objects::LIBRARIES;
pub use table::FUNCTIONS;
pub use value::EntryValue;

impl Layer {
    /// Name of its library, without version and suffix.
    pub const fn library(self) -> &'static str {
        match self {
            Self::Runtime => "libcudart",
            Self::Driver => "libcuda",
            Self::Framework => "libc10",
            Self::Library => "libcublas",
        }
    }
}

/// Tracing modes; any combination is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "What to trace", group = ArgGroup::new("single").multiple(true))]
pub struct Modes {
    /// Memory allocated and not freed; the default.
    #[arg(long)]
    pub memleak: bool,

    /// Which kernels are launched, and how often.
    #[arg(long)]
    pub cudatrace: bool,

    /// How much is copied, and how fast.
    #[arg(long, group = "single")]
    pub bandwidth_util: bool,

    /// Collect GPU activity with CUPTI.
    #[arg(skip)]
    pub activity: bool,
}

impl Modes {
    /// Memory only: the mode where none is given.
    pub const MEMORY: Self = Self {
        memleak: true,
        cudatrace: false,
        bandwidth_util: false,
        activity: false,
    };

    /// Names of these modes.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.memleak, "memleak"),
            (self.cudatrace, "cudatrace"),
            (self.bandwidth_util, "bandwidth-util"),
            (self.activity, "activity"),
        ];
        let these = all.into_iter().filter_map(|(on, name)| on.then_some(name));
        these.collect()
    }

    /// These modes, or where there is none, `default`.
    #[must_use]
    pub fn or(self, default: Self) -> Self {
        match self == Self::default() {
            true => default,
            false => self,
        }
    }
}

named! {
    /// Direction of a copy, by memory type of source and destination.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[allow(missing_docs)]
    pub enum Direction {
        HostToDevice = "H2D",
        DeviceToHost = "D2H",
        DeviceToDevice = "D2D",
        HostToHost = "H2H",
        PeerToPeer = "P2P",
        HostToArray = "H2A",
        ArrayToHost = "A2H",
        DeviceToArray = "D2A",
        ArrayToDevice = "A2D",
        ArrayToArray = "A2A",
        /// Managed memory pages that the driver migrated.
        UnifiedHostToDevice = "unified H2D",
        UnifiedDeviceToHost = "unified D2H",
        UnifiedDeviceToDevice = "unified D2D",
        /// Managed memory whose pages the program asked to be moved, if they aren't there already.
        PrefetchToDevice = "prefetch to D",
        PrefetchToHost = "prefetch to H",
        /// A memset, not a copy.
        Set = "set",
        Unknown = "unknown",
    }
}

impl Direction {
    /// Whether the bytes cross the link between host and GPU.
    pub const fn crosses_link(self) -> bool {
        matches!(
            self,
            Self::HostToDevice | Self::DeviceToHost | Self::HostToArray | Self::ArrayToHost
        )
    }
}

/// Source of a copy's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirectionSource {
    /// The function has a fixed direction.
    Always(Direction),
    /// A `cudaMemcpyKind` argument.
    ByKind,
    /// The `CUmemorytype` of source and destination.
    ByTypes,
    /// The memory types of the two addresses.
    ByAddresses,
    /// The number of a prefetch's device.
    ByDevice,
    /// The `CUmemLocationType` of a prefetch's destination.
    ByLocation,
}

/// A row of the function table: a function and its variants, which take the same arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name in reports, and the first symbol looked up.
    pub symbol: &'static str,
    /// Further symbols with the same arguments (older versions, `_ptsz`, `_ptds`); `*` stands for any text,
    /// `_ZTV<type>[4]` for the function in a slot of a type's table of virtual functions, `>` behind it for the function to
    /// which that one jumps, and `ret` behind that for the instructions that return from it.
    pub variants: &'static [&'static str],
    /// Library that exports the function.
    pub layer: Layer,
    /// Operation of the function.
    pub op: Op,
    /// Memory kind, for memory functions.
    pub kind: MemoryKind,
    /// The framework, of a hook of its allocator.
    pub framework: Option<Framework>,
    /// Kind of the object that is made or destroyed.
    pub handle: Option<HandleKind>,
    /// Size in bytes, or in units of [`Self::scale`] bytes.
    pub size: EntryValue,
    /// Address or context that is passed in.
    pub address: EntryValue,
    /// Pointer to the location of the result.
    pub out: EntryValue,
    /// Device index that is passed in; for a copy, its kind or the memory type of the source, for a
    /// prefetch the type of its location.
    pub device: EntryValue,
    /// For a copy, the memory type of the destination; for a block, what is added to its address.
    pub second: EntryValue,
    /// The stream, or another value that the operation needs.
    pub stream: EntryValue,
    /// Factors of `size`, if present (a height, a depth). For a batch, its length, if it is not 1, and
    /// the number of its locations.
    pub factors: [EntryValue; 2],
    /// If one of these is not 0, `size` is in array elements instead of bytes, and the copy is
    /// counted as lost.
    pub unless: [EntryValue; 2],
    /// Bytes per unit of `size`.
    pub scale: u8,
    /// Location of a launch's dimensions; for copies, whether the addresses are used.
    pub shape: LaunchShape,
    /// Source of a copy's direction.
    pub direction: CopyDirectionSource,
    /// The copy may complete after the call has returned.
    pub is_async: bool,
    /// `size` is the location to which the call writes the size, or the pitch that is multiplied by
    /// `factors`.
    pub size_at_return: bool,
    /// `stream` is a pointer to a name.
    pub named: bool,
    /// The 64 bytes at `out` are sent with the call.
    pub out_bytes: bool,
    /// Further values that the operation needs.
    pub extra: [EntryValue; EXTRA],
}

impl Function {
    /// All symbols of the row.
    pub fn symbols(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.symbol).chain(self.variants.iter().copied())
    }

    /// Name used in reports.
    pub const fn name(&self) -> &'static str {
        match self.framework {
            Some(framework) => framework.allocator(),
            None => self.symbol,
        }
    }

    /// Whether the ledger needs more of a call than its address and size.
    pub fn is_detailed(&self) -> bool {
        let is_plain = matches!(
            self.op,
            Op::ObjectCreate | Op::ObjectDestroy | Op::StreamDestroy
        );
        self.op.is_ledger_event() && !is_plain
            || matches!(self.op, Op::HandleRetain | Op::MapHandle)
            || self.extra.iter().any(|value| value.is_there())
    }
}

/// The row of blocks from before the tracing, which no function has allocated since.
pub const BEFORE: u16 = FUNCTIONS.len() as u16 - 2;

/// The row of blocks from between the times at which the frameworks' hooks were probed.
pub const BETWEEN: u16 = BEFORE + 1;
const _: () = assert!(matches!(FUNCTIONS[BEFORE as usize].op, Op::SelfTest));

/// Whether blocks of this row were found in memory, and not seen to be allocated.
pub const fn is_found(row: u16) -> bool {
    matches!(row, BEFORE | BETWEEN)
}

/// The row in which an allocator of this framework reports its blocks.
pub fn row_of_blocks(framework: Framework) -> Option<u16> {
    let is_it = |f: &Function| f.framework == Some(framework) && f.op == Op::Tensor;
    u16::try_from(FUNCTIONS.iter().position(is_it)?).ok()
}

/// The function in row `row`; `None` beyond the table.
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
                let is_new = seen.insert((function.framework, symbol));
                assert!(is_new, "{symbol} is in two rows");
            }
        }
    }

    #[test]
    fn layers_match_names() {
        for function in FUNCTIONS.iter().filter(|f| f.op != Op::SelfTest) {
            for symbol in function.symbols() {
                let framework = ["::", "_Z", "cupy."]
                    .iter()
                    .any(|part| symbol.contains(part));
                assert_eq!(framework, function.layer == Layer::Framework, "{symbol}");
                let runtime = symbol.starts_with("cuda");
                assert_eq!(runtime, function.layer == Layer::Runtime, "{symbol}");
            }
        }
    }

    #[test]
    fn every_operation_has_the_values_it_needs() {
        for function in FUNCTIONS {
            let has = EntryValue::is_there;
            let (address, out, device) = match function.op {
                Op::Allocate => {
                    let computed = function.kind.space() == AddressSpace::Arrays;
                    let unknown = function.kind == MemoryKind::Imported;
                    let sized = has(function.size) || computed || unknown;
                    assert!(sized, "{}", function.symbol);
                    let handed_in = function.kind == MemoryKind::Registered;
                    (handed_in, !handed_in, false)
                }
                Op::Free | Op::ContextSet | Op::ContextPush => (true, false, false),
                Op::ContextCreate | Op::ContextRetain => (false, true, true),
                Op::ContextPart => (true, true, false),
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
                Op::ContextDestroy
                | Op::PoolDestroy
                | Op::PoolTrim
                | Op::PoolLimit
                | Op::GraphFree => (true, false, false),
                Op::ModuleUnload | Op::GraphDestroy | Op::ObjectDestroy => (true, false, false),
                // Of some, the program chooses the number.
                Op::ObjectCreate => (has(function.address), !has(function.address), false),
                Op::Checkpoint | Op::Restore => (true, false, false),
                Op::DeviceReset => (false, false, function.layer == Layer::Driver),
                Op::PrimaryRelease => (false, false, true),
                Op::PoolSet => (true, false, true),
                Op::Launch | Op::GraphLaunch => {
                    assert!(has(function.stream), "{}", function.symbol);
                    (true, false, false)
                }
                Op::CaptureBegin | Op::CaptureEnd => {
                    assert!(has(function.stream), "{}", function.symbol);
                    let makes_graph = function.symbol == "cuStreamEndCapture";
                    (false, makes_graph, false)
                }
                Op::EventRecord | Op::StreamWait | Op::StreamDestroy => {
                    assert!(has(function.stream), "{}", function.symbol);
                    (true, false, false)
                }
                Op::KernelName => (true, true, false),
                // An allocator that reports devices reports totals, too; another may say which it is.
                Op::Tensor => {
                    assert!(has(function.out) || !has(function.device));
                    (true, has(function.out), has(function.device))
                }
                Op::OutOfMemory => (false, has(function.device), has(function.device)),
                Op::BlockRequest => (false, false, false),
                Op::Copy | Op::CopyBatch => {
                    assert!(has(function.size), "{}", function.symbol);
                    let asynchronous = has(function.stream);
                    assert_eq!(asynchronous, function.is_async, "{}", function.symbol);
                    let kinds = match function.direction {
                        CopyDirectionSource::Always(_) | CopyDirectionSource::ByAddresses => {
                            (false, false)
                        }
                        CopyDirectionSource::ByKind
                        | CopyDirectionSource::ByDevice
                        | CopyDirectionSource::ByLocation => (true, false),
                        CopyDirectionSource::ByTypes => (true, true),
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
