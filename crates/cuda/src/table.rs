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
use super::runtime_copies::RUNTIME_COPIES;
use super::{
    CopyDirectionSource, Direction, EXTRA, EntryValue, Function, LaunchShape, Layer, MAX_ROWS,
    MemoryKind, Op,
};

const NONE: EntryValue = EntryValue::NONE;

/// A row without arguments, to be completed with struct update syntax.
pub(super) const fn row(layer: Layer, op: Op, symbol: &'static str) -> Function {
    Function {
        symbol,
        variants: &[],
        layer,
        op,
        kind: MemoryKind::Device,
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

pub(super) const fn runtime(op: Op, symbol: &'static str) -> Function {
    row(Layer::Runtime, op, symbol)
}

pub(super) const fn driver(op: Op, symbol: &'static str) -> Function {
    row(Layer::Driver, op, symbol)
}

/// Row of the self-test function, which no CUDA library exports.
pub const SELF_TEST_ROW: u16 = 0;

const SELF_TEST: &[Function] = &[driver(Op::SelfTest, "gpuprobe_self_test")];

const PARTS: [&[Function]; 8] = [
    SELF_TEST,
    MEMORY,
    HOLDERS,
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
