//! The function table. Argument positions are those of NVIDIA's `cuda.h` and `cuda_runtime_api.h`,
//! CUDA 11.8 to 13, on x86-64 System V; they are equal in these versions for all rows. The driver's
//! unversioned legacy functions with 32-bit sizes (`cuMemAlloc`, `cuMemFree`) are not traced: their
//! arguments differ from the `_v2` functions.

use super::contexts::CONTEXTS;
use super::copies::DRIVER_COPIES;
use super::frameworks::FRAMEWORKS;
use super::holders::HOLDERS;
use super::launches::LAUNCHES;
use super::memory::MEMORY;
use super::objects::OBJECTS;
use super::runtime_copies::RUNTIME_COPIES;
use super::{
    CopyDirectionSource, Direction, EXTRA, EntryValue, Function, HandleKind, LaunchShape, Layer,
    MAX_ROWS, MemoryKind, Op,
};

/// Values at function entry: none, integer arguments, and stack slots.
pub(super) const NONE: EntryValue = EntryValue::NONE;
pub(super) const A0: EntryValue = EntryValue::argument(0);
pub(super) const A1: EntryValue = EntryValue::argument(1);
pub(super) const A2: EntryValue = EntryValue::argument(2);
pub(super) const A3: EntryValue = EntryValue::argument(3);
pub(super) const A4: EntryValue = EntryValue::argument(4);
pub(super) const A5: EntryValue = EntryValue::argument(5);
pub(super) const S0: EntryValue = EntryValue::stack(0);
pub(super) const S1: EntryValue = EntryValue::stack(1);
pub(super) const S2: EntryValue = EntryValue::stack(2);

pub(super) const RUNTIME: Layer = Layer::Runtime;
pub(super) const DRIVER: Layer = Layer::Driver;

/// The symbol of a function, and those of its variants.
#[derive(Clone, Copy)]
pub(super) struct Names(pub(super) &'static str, pub(super) &'static [&'static str]);

pub(super) const fn only(symbol: &'static str) -> Names {
    Names(symbol, &[])
}

/// A function with a variant for the default stream of each thread, which does not wait.
macro_rules! ptsz {
    ($symbol:literal) => {
        Names($symbol, &[concat!($symbol, "_ptsz")])
    };
}

/// The same of a function that waits.
macro_rules! ptds {
    ($symbol:literal) => {
        Names($symbol, &[concat!($symbol, "_ptds")])
    };
}

/// The second version of a function whose first one has the same arguments.
macro_rules! v2 {
    ($symbol:literal) => {
        Names(concat!($symbol, "_v2"), &[$symbol])
    };
}
pub(super) use {ptds, ptsz, v2};

/// A row without arguments, to be completed with struct update syntax.
pub(super) const fn row(layer: Layer, op: Op, names: Names) -> Function {
    Function {
        symbol: names.0,
        variants: names.1,
        layer,
        op,
        kind: MemoryKind::Device,
        framework: None,
        handle: None,
        size: NONE,
        address: NONE,
        out: NONE,
        device: NONE,
        second: NONE,
        stream: NONE,
        factors: [NONE, NONE],
        unless: [NONE, NONE],
        scale: 1,
        shape: LaunchShape::None,
        direction: CopyDirectionSource::Always(Direction::Unknown),
        is_async: false,
        size_at_return: false,
        named: false,
        out_bytes: false,
        extra: [NONE; EXTRA],
    }
}

pub(super) const fn runtime(op: Op, names: Names) -> Function {
    row(RUNTIME, op, names)
}

pub(super) const fn driver(op: Op, names: Names) -> Function {
    row(DRIVER, op, names)
}

/// Returns an object, handle or number in argument 0.
pub(super) const fn writes(function: Function) -> Function {
    Function {
        out: A0,
        ..function
    }
}

/// Makes or destroys an object of this kind.
pub(super) const fn of_kind(kind: HandleKind, function: Function) -> Function {
    Function {
        handle: Some(kind),
        ..function
    }
}

/// Is about the object in argument 0.
pub(super) const fn about(function: Function) -> Function {
    Function {
        address: A0,
        ..function
    }
}

/// Row of the self-test function, which no CUDA library exports.
pub const SELF_TEST_ROW: u16 = 0;

const SELF_TEST: &[Function] = &[driver(Op::SelfTest, only("gpuprobe_self_test"))];

const PARTS: [&[Function]; 9] = [
    SELF_TEST,
    MEMORY,
    HOLDERS,
    OBJECTS,
    CONTEXTS,
    LAUNCHES,
    DRIVER_COPIES,
    RUNTIME_COPIES,
    FRAMEWORKS,
];

const COUNT: usize = {
    let (mut count, mut part) = (0, 0);
    while part < PARTS.len() {
        count += PARTS[part].len();
        part += 1;
    }
    count
};

static ALL: [Function; COUNT] = {
    let mut all = [SELF_TEST[0]; COUNT];
    let (mut part, mut next) = (0, 0);
    while part < PARTS.len() {
        let mut row = 0;
        while row < PARTS[part].len() {
            all[next] = PARTS[part][row];
            next += 1;
            row += 1;
        }
        part += 1;
    }
    all
};

/// All traced functions; the row of a function is its index.
pub static FUNCTIONS: &[Function] = &ALL;

const _: () = assert!(COUNT <= MAX_ROWS);
