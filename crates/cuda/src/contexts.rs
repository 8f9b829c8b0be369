//! Functions that set or report the current context and device, and functions that end contexts.

use super::table::{driver, runtime};
use super::{EntryValue, Function, Op};

const A0: EntryValue = EntryValue::argument(0);
const A1: EntryValue = EntryValue::argument(1);

pub(super) const CONTEXTS: &[Function] = &[
    Function {
        device: A0.bits32(),
        ..runtime(Op::DeviceSet, "cudaSetDevice")
    },
    Function {
        out: A0,
        ..runtime(Op::DeviceGet, "cudaGetDevice")
    },
    Function {
        out: A0,
        ..runtime(Op::DeviceCount, "cudaGetDeviceCount")
    },
    Function {
        out: A0,
        ..driver(Op::DeviceCount, "cuDeviceGetCount")
    },
    Function {
        out: A0,
        device: A1.bits32(),
        ..driver(Op::ContextRetain, "cuDevicePrimaryCtxRetain")
    },
    Function {
        variants: &["cuDevicePrimaryCtxRelease"],
        device: A0.bits32(),
        ..driver(Op::PrimaryRelease, "cuDevicePrimaryCtxRelease_v2")
    },
    Function {
        variants: &["cuDevicePrimaryCtxReset"],
        device: A0.bits32(),
        ..driver(Op::DeviceReset, "cuDevicePrimaryCtxReset_v2")
    },
    runtime(Op::DeviceReset, "cudaDeviceReset"),
    Function {
        variants: &["cuCtxCreate"],
        out: A0,
        device: EntryValue::argument32(2),
        ..driver(Op::ContextCreate, "cuCtxCreate_v2")
    },
    Function {
        out: A0,
        device: EntryValue::argument32(4),
        ..driver(Op::ContextCreate, "cuCtxCreate_v3")
    },
    Function {
        out: A0,
        device: EntryValue::argument32(3),
        ..driver(Op::ContextCreate, "cuCtxCreate_v4")
    },
    Function {
        variants: &["cuCtxDestroy"],
        address: A0,
        ..driver(Op::ContextDestroy, "cuCtxDestroy_v2")
    },
    Function {
        address: A0,
        ..driver(Op::ContextSet, "cuCtxSetCurrent")
    },
    Function {
        out: A0,
        ..driver(Op::ContextGet, "cuCtxGetCurrent")
    },
    Function {
        variants: &["cuCtxPushCurrent"],
        address: A0,
        ..driver(Op::ContextPush, "cuCtxPushCurrent_v2")
    },
    Function {
        variants: &["cuCtxPopCurrent"],
        ..driver(Op::ContextPop, "cuCtxPopCurrent_v2")
    },
    Function {
        out: A0,
        ..driver(Op::ContextDevice, "cuCtxGetDevice")
    },
    Function {
        out: A0,
        address: A1,
        ..driver(Op::ContextDevice, "cuCtxGetDevice_v2")
    },
];
