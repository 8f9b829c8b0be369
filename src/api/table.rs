//! The table. Argument positions are those of NVIDIA's `cuda.h` and `cuda_runtime_api.h`, CUDA
//! 11.8 to 13, on x86-64 System V; they never differ between these versions for the rows here.
//! The driver's un-suffixed legacy names with 32-bit sizes (`cuMemAlloc`, `cuMemFree`) are left
//! out: their arguments are not those of the `_v2` forms.

use super::copies::DRIVER_COPIES;
use super::launches::LAUNCHES;
use super::runtime_copies::RUNTIME_COPIES;
use super::{Direction, Function, Layer, MemoryKind, Op, Shape, Told, Value};

const NONE: Value = Value::NONE;

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
        shape: Shape::None,
        told: Told::Always(Direction::Unknown),
        is_async: false,
    }
}

const fn runtime(op: Op, symbol: &'static str) -> Function {
    row(Layer::Runtime, op, symbol)
}

const fn driver(op: Op, symbol: &'static str) -> Function {
    row(Layer::Driver, op, symbol)
}

/// The row of the self-test, which stands in no CUDA library.
pub const SELF_TEST_ROW: u16 = 0;

/// The rows before those of launches and copies.
const MEMORY: &[Function] = &[
    row(Layer::Driver, Op::SelfTest, "gpuprobe_self_test"),
    // Memory.
    Function {
        out: Value::argument(0),
        size: Value::argument(1),
        ..runtime(Op::Allocate, "cudaMalloc")
    },
    Function {
        address: Value::argument(0),
        ..runtime(Op::Free, "cudaFree")
    },
    Function {
        out: Value::argument(0),
        size: Value::argument(1),
        ..driver(Op::Allocate, "cuMemAlloc_v2")
    },
    Function {
        address: Value::argument(0),
        ..driver(Op::Free, "cuMemFree_v2")
    },
    // Which device a thread is on.
    Function {
        device: Value::argument32(0),
        ..runtime(Op::DeviceSet, "cudaSetDevice")
    },
    Function {
        out: Value::argument(0),
        ..runtime(Op::DeviceGet, "cudaGetDevice")
    },
    Function {
        out: Value::argument(0),
        ..runtime(Op::DeviceCount, "cudaGetDeviceCount")
    },
    Function {
        out: Value::argument(0),
        ..driver(Op::DeviceCount, "cuDeviceGetCount")
    },
    Function {
        out: Value::argument(0),
        device: Value::argument32(1),
        ..driver(Op::ContextRetain, "cuDevicePrimaryCtxRetain")
    },
    Function {
        variants: &["cuCtxCreate"],
        out: Value::argument(0),
        device: Value::argument32(2),
        ..driver(Op::ContextCreate, "cuCtxCreate_v2")
    },
    Function {
        out: Value::argument(0),
        device: Value::argument32(4),
        ..driver(Op::ContextCreate, "cuCtxCreate_v3")
    },
    Function {
        out: Value::argument(0),
        device: Value::argument32(3),
        ..driver(Op::ContextCreate, "cuCtxCreate_v4")
    },
    Function {
        address: Value::argument(0),
        ..driver(Op::ContextSet, "cuCtxSetCurrent")
    },
    Function {
        out: Value::argument(0),
        ..driver(Op::ContextGet, "cuCtxGetCurrent")
    },
    Function {
        variants: &["cuCtxPushCurrent"],
        address: Value::argument(0),
        ..driver(Op::ContextPush, "cuCtxPushCurrent_v2")
    },
    Function {
        variants: &["cuCtxPopCurrent"],
        ..driver(Op::ContextPop, "cuCtxPopCurrent_v2")
    },
    Function {
        out: Value::argument(0),
        ..driver(Op::ContextDevice, "cuCtxGetDevice")
    },
    Function {
        out: Value::argument(0),
        address: Value::argument(1),
        ..driver(Op::ContextDevice, "cuCtxGetDevice_v2")
    },
];

const COUNT: usize = MEMORY.len() + LAUNCHES.len() + DRIVER_COPIES.len() + RUNTIME_COPIES.len();

const ALL: [Function; COUNT] = {
    let mut all = [MEMORY[0]; COUNT];
    let parts = [MEMORY, LAUNCHES, DRIVER_COPIES, RUNTIME_COPIES];
    let (mut part, mut next) = (0, 0);
    while part < parts.len() {
        let mut row = 0;
        while row < parts[part].len() {
            all[next] = parts[part][row];
            next += 1;
            row += 1;
        }
        part += 1;
    }
    all
};

/// Every traced function; a function's row is its index.
pub const FUNCTIONS: &[Function] = &ALL;
