//! The traced CUDA functions, as data.
//!
//! [`table::FUNCTIONS`] drives attaching, `doctor`, the tests and the documentation; the kernel
//! side receives each row as a recipe and finds it again through the attach cookie, which is the
//! row's number. Supporting one more function is one more row.

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
}

impl Op {
    /// Whether the ledger is told about calls of this kind.
    pub const fn is_memory(self) -> bool {
        matches!(self, Self::Allocate | Self::Free)
    }
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
        Self {
            bits: 32,
            ..Self::argument(index)
        }
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
#[derive(Clone, Copy, Debug)]
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
    /// Device index that is handed in.
    pub device: Value,
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
                Op::SelfTest | Op::ContextPop => (false, false, false),
            };
            assert_eq!(has(function.address), address, "{}", function.symbol);
            assert_eq!(has(function.out), out, "{}", function.symbol);
            assert_eq!(has(function.device), device, "{}", function.symbol);
        }
    }
}
