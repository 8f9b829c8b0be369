//! Functions that make and destroy streams, events and the like: at the driver layer, which the runtime calls for them,
//! and in libraries with handles of their own.

use super::table::{A0, A1, A3, A4, Names, about, driver, of_kind, only, row, v2, writes};
use super::{EntryValue, Function, HandleKind, Layer, Op};

/// Beginnings of the names of the libraries with handles of their own.
pub const LIBRARIES: [&str; 7] = [
    "libcublas.so",
    "libcublasLt.so",
    "libcufft.so",
    "libcudnn",
    "libcusparse.so",
    "libcusolver.so",
    "libnccl.so",
];

const fn creates(kind: HandleKind, symbol: &'static str) -> Function {
    of_kind(kind, writes(driver(Op::ObjectCreate, only(symbol))))
}

/// Makes or destroys the logical endpoint with the number in argument 0.
const fn endpoint(op: Op, symbol: &'static str) -> Function {
    Function {
        address: A0.bits32(),
        ..of_kind(HandleKind::LogicalEndpoint, driver(op, only(symbol)))
    }
}

const fn in_library(op: Op, kind: HandleKind, names: Names) -> Function {
    of_kind(kind, row(Layer::Library, op, names))
}

const fn opens(kind: HandleKind, symbol: &'static str) -> Function {
    writes(in_library(Op::ObjectCreate, kind, only(symbol)))
}

const fn closes(kind: HandleKind, symbol: &'static str) -> Function {
    about(in_library(Op::ObjectDestroy, kind, only(symbol)))
}

/// Writes a communicator made of another to `out`: 0 where this rank is not in it.
const fn child(out: EntryValue, symbol: &'static str) -> Function {
    Function {
        out,
        ..opens(HandleKind::Communicator, symbol)
    }
}

pub(super) const OBJECTS: &[Function] = &[
    creates(HandleKind::Stream, "cuStreamCreate"),
    creates(HandleKind::Stream, "cuStreamCreateWithPriority"),
    creates(HandleKind::Stream, "cuGreenCtxStreamCreate"),
    creates(HandleKind::Event, "cuEventCreate"),
    of_kind(
        HandleKind::Event,
        about(driver(Op::ObjectDestroy, v2!("cuEventDestroy"))),
    ),
    endpoint(Op::ObjectCreate, "cuLogicalEndpointCreate"),
    endpoint(Op::ObjectCreate, "cuLogicalEndpointImport"),
    endpoint(Op::ObjectDestroy, "cuLogicalEndpointDestroy"),
    opens(HandleKind::Blas, "cublasCreate_v2"),
    closes(HandleKind::Blas, "cublasDestroy_v2"),
    opens(HandleKind::BlasLt, "cublasLtCreate"),
    closes(HandleKind::BlasLt, "cublasLtDestroy"),
    opens(HandleKind::Fft, "cufftCreate"),
    opens(HandleKind::Fft, "cufftPlan1d"),
    opens(HandleKind::Fft, "cufftPlan2d"),
    opens(HandleKind::Fft, "cufftPlan3d"),
    opens(HandleKind::Fft, "cufftPlanMany"),
    Function {
        address: A0.bits32(),
        ..in_library(Op::ObjectDestroy, HandleKind::Fft, only("cufftDestroy"))
    },
    opens(HandleKind::Dnn, "cudnnCreate"),
    closes(HandleKind::Dnn, "cudnnDestroy"),
    opens(HandleKind::Sparse, "cusparseCreate"),
    closes(HandleKind::Sparse, "cusparseDestroy"),
    opens(HandleKind::Solver, "cusolverDnCreate"),
    closes(HandleKind::Solver, "cusolverDnDestroy"),
    opens(HandleKind::Communicator, "ncclCommInitRank"),
    opens(HandleKind::Communicator, "ncclCommInitRankConfig"),
    opens(HandleKind::Communicator, "ncclCommInitRankScalable"),
    Function {
        size: A1.bits32(),
        ..opens(HandleKind::Communicator, "ncclCommInitAll")
    },
    child(A3, "ncclCommSplit"),
    child(A3, "ncclCommShrink"),
    child(A4, "ncclCommGrow"),
    closes(HandleKind::Communicator, "ncclCommDestroy"),
    closes(HandleKind::Communicator, "ncclCommAbort"),
];
