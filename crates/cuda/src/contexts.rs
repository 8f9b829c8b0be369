//! Functions that set or report the current context and device, and functions that end contexts.

use super::table::{A0, A1, A2, A3, A4, Names, about, driver, of_kind, only, runtime, v2, writes};
use super::{EntryValue, Function, HandleKind, Op};

/// A function about the device with the number in `device`.
const fn on(device: EntryValue, function: Function) -> Function {
    Function {
        device: device.bits32(),
        ..function
    }
}

const fn creates(names: Names, device: EntryValue) -> Function {
    let creates = writes(driver(Op::ContextCreate, names));
    on(device, of_kind(HandleKind::Context, creates))
}

const fn retains(kind: HandleKind, symbol: &'static str, device: EntryValue) -> Function {
    let retains = writes(driver(Op::ContextRetain, only(symbol)));
    on(device, of_kind(kind, retains))
}

pub(super) const CONTEXTS: &[Function] = &[
    on(A0, runtime(Op::DeviceSet, only("cudaSetDevice"))),
    writes(runtime(Op::DeviceGet, only("cudaGetDevice"))),
    writes(runtime(Op::DeviceCount, only("cudaGetDeviceCount"))),
    writes(driver(Op::DeviceCount, only("cuDeviceGetCount"))),
    retains(HandleKind::PrimaryContext, "cuDevicePrimaryCtxRetain", A1),
    on(
        A0,
        driver(Op::PrimaryRelease, v2!("cuDevicePrimaryCtxRelease")),
    ),
    on(A0, driver(Op::DeviceReset, v2!("cuDevicePrimaryCtxReset"))),
    runtime(Op::DeviceReset, only("cudaDeviceReset")),
    // A green context is a part of the primary one, whose memory it uses and which it keeps.
    retains(HandleKind::GreenContext, "cuGreenCtxCreate", A2),
    Function {
        address: A1,
        ..writes(driver(Op::ContextPart, only("cuCtxFromGreenCtx")))
    },
    of_kind(
        HandleKind::GreenContext,
        about(driver(Op::ObjectDestroy, only("cuGreenCtxDestroy"))),
    ),
    creates(v2!("cuCtxCreate"), A2),
    creates(only("cuCtxCreate_v3"), A4),
    creates(only("cuCtxCreate_v4"), A3),
    of_kind(
        HandleKind::Context,
        about(driver(Op::ContextDestroy, v2!("cuCtxDestroy"))),
    ),
    about(driver(Op::ContextSet, only("cuCtxSetCurrent"))),
    writes(driver(Op::ContextGet, only("cuCtxGetCurrent"))),
    about(driver(Op::ContextPush, v2!("cuCtxPushCurrent"))),
    driver(Op::ContextPop, v2!("cuCtxPopCurrent")),
    writes(driver(Op::ContextDevice, only("cuCtxGetDevice"))),
    Function {
        address: A1,
        ..writes(driver(Op::ContextDevice, only("cuCtxGetDevice_v2")))
    },
    about(driver(
        Op::Checkpoint,
        only("cuCheckpointProcessCheckpoint"),
    )),
    about(driver(Op::Restore, only("cuCheckpointProcessRestore"))),
];
