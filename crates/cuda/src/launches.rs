//! Launch functions, and the functions by which captured launches are distinguished from executed
//! ones. NVIDIA's runtime also exports `__cudaLaunchKernel`, which jumps into `cudaLaunchKernel`:
//! only the latter is probed, so that a launch is counted once.

use super::table::row;
use super::{EntryValue, Function, LaunchShape, Layer, Op};

const fn driver(op: Op, symbol: &'static str, variants: &'static [&'static str]) -> Function {
    Function {
        variants,
        ..row(Layer::Driver, op, symbol)
    }
}

/// A launch function with its stream in stack slot `stream`.
const fn launch(
    layer: Layer,
    symbol: &'static str,
    variants: &'static [&'static str],
    shape: LaunchShape,
    stream: u8,
) -> Function {
    Function {
        variants,
        address: EntryValue::argument(0),
        stream: EntryValue::stack(stream),
        shape,
        ..row(layer, Op::Launch, symbol)
    }
}

/// A launch function with a `CUlaunchConfig` or `cudaLaunchConfig_t`; both have the stream at
/// offset 32.
const fn launch_by_config(
    layer: Layer,
    symbol: &'static str,
    variants: &'static [&'static str],
) -> Function {
    Function {
        variants,
        address: EntryValue::argument(1),
        stream: EntryValue::argument(0).behind(32),
        shape: LaunchShape::Config,
        ..row(layer, Op::Launch, symbol)
    }
}

const fn graph_launch(
    layer: Layer,
    symbol: &'static str,
    variants: &'static [&'static str],
) -> Function {
    Function {
        variants,
        address: EntryValue::argument(0),
        stream: EntryValue::argument(1),
        ..row(layer, Op::GraphLaunch, symbol)
    }
}

const fn named(symbol: &'static str) -> Function {
    Function {
        out: EntryValue::argument(0),
        address: EntryValue::argument(2),
        ..driver(Op::KernelName, symbol, &[])
    }
}

pub(super) const LAUNCHES: &[Function] = &[
    launch(
        Layer::Driver,
        "cuLaunchKernel",
        &["cuLaunchKernel_ptsz"],
        LaunchShape::Arguments,
        2,
    ),
    launch_by_config(
        Layer::Driver,
        "cuLaunchKernelEx",
        &["cuLaunchKernelEx_ptsz"],
    ),
    launch(
        Layer::Driver,
        "cuLaunchCooperativeKernel",
        &["cuLaunchCooperativeKernel_ptsz"],
        LaunchShape::Arguments,
        2,
    ),
    graph_launch(Layer::Driver, "cuGraphLaunch", &["cuGraphLaunch_ptsz"]),
    launch(
        Layer::Runtime,
        "cudaLaunchKernel",
        &["cudaLaunchKernel_ptsz"],
        LaunchShape::Dim3,
        1,
    ),
    launch_by_config(
        Layer::Runtime,
        "cudaLaunchKernelExC",
        &["cudaLaunchKernelExC_ptsz"],
    ),
    launch(
        Layer::Runtime,
        "cudaLaunchCooperativeKernel",
        &["cudaLaunchCooperativeKernel_ptsz"],
        LaunchShape::Dim3,
        1,
    ),
    graph_launch(Layer::Runtime, "cudaGraphLaunch", &["cudaGraphLaunch_ptsz"]),
    Function {
        stream: EntryValue::argument(0),
        ..driver(
            Op::CaptureBegin,
            "cuStreamBeginCapture_v2",
            &[
                "cuStreamBeginCapture_v2_ptsz",
                "cuStreamBeginCapture",
                "cuStreamBeginCapture_ptsz",
                "cuStreamBeginCaptureToGraph",
                "cuStreamBeginCaptureToGraph_ptsz",
            ],
        )
    },
    Function {
        stream: EntryValue::argument(0),
        out: EntryValue::argument(1),
        ..driver(
            Op::CaptureEnd,
            "cuStreamEndCapture",
            &["cuStreamEndCapture_ptsz"],
        )
    },
    Function {
        address: EntryValue::argument(0),
        stream: EntryValue::argument(1),
        ..driver(
            Op::EventRecord,
            "cuEventRecord",
            &[
                "cuEventRecord_ptsz",
                "cuEventRecordWithFlags",
                "cuEventRecordWithFlags_ptsz",
            ],
        )
    },
    Function {
        stream: EntryValue::argument(0),
        address: EntryValue::argument(1),
        ..driver(
            Op::StreamWait,
            "cuStreamWaitEvent",
            &["cuStreamWaitEvent_ptsz"],
        )
    },
    Function {
        stream: EntryValue::argument(0),
        ..driver(
            Op::StreamDestroy,
            "cuStreamDestroy_v2",
            &["cuStreamDestroy"],
        )
    },
    named("cuModuleGetFunction"),
    named("cuLibraryGetKernel"),
];
