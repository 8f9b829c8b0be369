//! Functions that set or report the current context and device, and functions that end contexts.

use super::table::{A0, A1, A2, A3, A4, Names, about, driver, of_kind, only, runtime, writes};
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

/// A driver function with a version that has the same arguments.
const fn versions(op: Op, symbol: &'static str, older: &'static [&'static str]) -> Function {
    driver(op, Names(symbol, older))
}

pub(super) const CONTEXTS: &[Function] = &[
    on(A0, runtime(Op::DeviceSet, only("cudaSetDevice"))),
    writes(runtime(Op::DeviceGet, only("cudaGetDevice"))),
    writes(runtime(Op::DeviceCount, only("cudaGetDeviceCount"))),
    writes(driver(Op::DeviceCount, only("cuDeviceGetCount"))),
    on(
        A1,
        of_kind(
            HandleKind::PrimaryContext,
            writes(driver(Op::ContextRetain, only("cuDevicePrimaryCtxRetain"))),
        ),
    ),
    on(
        A0,
        versions(
            Op::PrimaryRelease,
            "cuDevicePrimaryCtxRelease_v2",
            &["cuDevicePrimaryCtxRelease"],
        ),
    ),
    on(
        A0,
        versions(
            Op::DeviceReset,
            "cuDevicePrimaryCtxReset_v2",
            &["cuDevicePrimaryCtxReset"],
        ),
    ),
    runtime(Op::DeviceReset, only("cudaDeviceReset")),
    // A green context is a part of the primary one, whose memory it uses and which it keeps.
    on(
        A2,
        of_kind(
            HandleKind::GreenContext,
            writes(driver(Op::ContextRetain, only("cuGreenCtxCreate"))),
        ),
    ),
    Function {
        address: A1,
        ..writes(driver(Op::ContextPart, only("cuCtxFromGreenCtx")))
    },
    of_kind(
        HandleKind::GreenContext,
        about(driver(Op::ObjectDestroy, only("cuGreenCtxDestroy"))),
    ),
    creates(Names("cuCtxCreate_v2", &["cuCtxCreate"]), A2),
    creates(only("cuCtxCreate_v3"), A4),
    creates(only("cuCtxCreate_v4"), A3),
    of_kind(
        HandleKind::Context,
        about(versions(
            Op::ContextDestroy,
            "cuCtxDestroy_v2",
            &["cuCtxDestroy"],
        )),
    ),
    about(driver(Op::ContextSet, only("cuCtxSetCurrent"))),
    writes(driver(Op::ContextGet, only("cuCtxGetCurrent"))),
    about(versions(
        Op::ContextPush,
        "cuCtxPushCurrent_v2",
        &["cuCtxPushCurrent"],
    )),
    versions(Op::ContextPop, "cuCtxPopCurrent_v2", &["cuCtxPopCurrent"]),
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
