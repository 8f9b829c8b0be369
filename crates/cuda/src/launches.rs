//! Launch functions, and the functions by which captured launches are distinguished from executed
//! ones. NVIDIA's runtime also exports `__cudaLaunchKernel`, which jumps into `cudaLaunchKernel`:
//! only the latter is probed, so that a launch is counted once.

use super::table::{
    A0, A1, A2, DRIVER, Names, RUNTIME, S1, S2, about, driver, of_kind, only, ptsz, row, v2, writes,
};
use super::{EntryValue, Function, HandleKind, LaunchShape, Layer, Op};

/// A launch function of the driver with the kernel's dimensions in its arguments.
const fn launch(names: Names) -> Function {
    Function {
        stream: S2,
        shape: LaunchShape::Arguments,
        ..about(row(DRIVER, Op::Launch, names))
    }
}

/// A launch function of the runtime.
const fn runtime_launch(names: Names) -> Function {
    Function {
        stream: S1,
        shape: LaunchShape::Dim3,
        ..about(row(RUNTIME, Op::Launch, names))
    }
}

/// A launch function with a `CUlaunchConfig` or `cudaLaunchConfig_t`; both have the stream at
/// offset 32.
const fn launch_by_config(layer: Layer, names: Names) -> Function {
    Function {
        address: A1,
        stream: A0.behind(32),
        shape: LaunchShape::Config,
        ..row(layer, Op::Launch, names)
    }
}

const fn graph_launch(layer: Layer, names: Names) -> Function {
    Function {
        address: A0,
        stream: A1,
        ..row(layer, Op::GraphLaunch, names)
    }
}

const fn named(symbol: &'static str) -> Function {
    Function {
        address: A2,
        ..writes(driver(Op::KernelName, only(symbol)))
    }
}

/// A function about `stream`.
const fn on(stream: EntryValue, function: Function) -> Function {
    Function { stream, ..function }
}

const CAPTURE_BEGINS: Names = Names(
    "cuStreamBeginCapture_v2",
    &[
        "cuStreamBeginCapture_v2_ptsz",
        "cuStreamBeginCapture",
        "cuStreamBeginCapture_ptsz",
        "cuStreamBeginCaptureToGraph",
        "cuStreamBeginCaptureToGraph_ptsz",
        "cuStreamBeginRecaptureToGraph",
        "cuStreamBeginRecaptureToGraph_ptsz",
        "cuStreamBeginCaptureToCig",
        "cuStreamBeginCaptureToCig_ptsz",
    ],
);
const EVENT_RECORDS: Names = Names(
    "cuEventRecord",
    &[
        "cuEventRecord_ptsz",
        "cuEventRecordWithFlags",
        "cuEventRecordWithFlags_ptsz",
    ],
);

pub(super) const LAUNCHES: &[Function] = &[
    launch(ptsz!("cuLaunchKernel")),
    launch_by_config(DRIVER, ptsz!("cuLaunchKernelEx")),
    launch(ptsz!("cuLaunchCooperativeKernel")),
    graph_launch(DRIVER, ptsz!("cuGraphLaunch")),
    runtime_launch(ptsz!("cudaLaunchKernel")),
    launch_by_config(RUNTIME, ptsz!("cudaLaunchKernelExC")),
    runtime_launch(ptsz!("cudaLaunchCooperativeKernel")),
    graph_launch(RUNTIME, ptsz!("cudaGraphLaunch")),
    on(A0, driver(Op::CaptureBegin, CAPTURE_BEGINS)),
    Function {
        stream: A0,
        out: A1,
        ..driver(Op::CaptureEnd, ptsz!("cuStreamEndCapture"))
    },
    // What it captures is executed by a graphics API.
    on(A0, driver(Op::CaptureEnd, ptsz!("cuStreamEndCaptureToCig"))),
    on(A1, about(driver(Op::EventRecord, EVENT_RECORDS))),
    Function {
        stream: A0,
        address: A1,
        ..driver(Op::StreamWait, ptsz!("cuStreamWaitEvent"))
    },
    on(
        A0,
        of_kind(
            HandleKind::Stream,
            about(driver(Op::StreamDestroy, v2!("cuStreamDestroy"))),
        ),
    ),
    named("cuModuleGetFunction"),
    named("cuLibraryGetKernel"),
];
