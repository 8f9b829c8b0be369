//! Copy, prefetch and memset functions of the runtime. `cudaMemPrefetchAsync` and the batches of copies have no
//! row: their arguments differ between CUDA 12 and 13.

use super::copies::{
    ARGS_012, ARGS_024, Moves, PEER, by_addresses, copy, cuboids, prefetches, set,
};
use super::table::{A0, A1, A2, A3, A4, A5, NONE, Names, RUNTIME, S0, S1, S2, only, ptds, ptsz};
use super::{CopyDirectionSource::ByKind, EntryValue, Function};

const ARGS_025: Moves = Moves(A0, A2, A5);
const ARGS_034: Moves = Moves(A0, A3, A4);
const ARGS_035: Moves = Moves(A0, A3, A5);
const ARGS_014: Moves = Moves(A0, A1, A4);

/// A copy function with a `cudaMemcpyKind`.
const fn runtime(names: Names, moves: Moves, kind: EntryValue, stream: EntryValue) -> Function {
    Function {
        device: kind.bits32(),
        ..copy(RUNTIME, names, ByKind, moves, stream)
    }
}

/// A two-dimensional copy function with a `cudaMemcpyKind`.
const fn runtime_2d(
    names: Names,
    moves: Moves,
    height: EntryValue,
    kind: EntryValue,
    stream: EntryValue,
) -> Function {
    Function {
        factors: [height, NONE],
        ..runtime(names, moves, kind, stream)
    }
}

const fn runtime_set(
    names: Names,
    size: EntryValue,
    height: EntryValue,
    stream: EntryValue,
) -> Function {
    set(RUNTIME, names, 1, size, height, stream)
}

/// A copy function with a `cudaMemcpy3DParms`. Between pointers its width is in bytes; with an
/// array it is in elements.
const fn runtime_3d(names: Names, stream: EntryValue) -> Function {
    let moves = Moves(A0.behind(96), A0.behind(32), A0.behind(128));
    Function {
        factors: [A0.behind(136), A0.behind(144)],
        unless: [A0.behind(0), A0.behind(64)],
        ..runtime(names, moves, A0.behind(152), stream)
    }
}

pub(super) const RUNTIME_COPIES: &[Function] = &[
    runtime(ptds!("cudaMemcpy"), ARGS_012, A3, NONE),
    runtime(ptsz!("cudaMemcpyAsync"), ARGS_012, A3, A4),
    runtime(ptds!("cudaMemcpyToSymbol"), ARGS_012, A4, NONE),
    runtime(ptsz!("cudaMemcpyToSymbolAsync"), ARGS_012, A4, A5),
    runtime(ptds!("cudaMemcpyFromSymbol"), ARGS_012, A4, NONE),
    runtime(ptsz!("cudaMemcpyFromSymbolAsync"), ARGS_012, A4, A5),
    runtime_2d(ptds!("cudaMemcpy2D"), ARGS_024, A5, S0, NONE),
    runtime_2d(ptsz!("cudaMemcpy2DAsync"), ARGS_024, A5, S0, S1),
    runtime(ptds!("cudaMemcpyToArray"), ARGS_034, A5, NONE),
    runtime(ptds!("cudaMemcpyFromArray"), ARGS_014, A5, NONE),
    runtime_2d(ptds!("cudaMemcpy2DToArray"), ARGS_035, S0, S1, NONE),
    runtime_2d(ptsz!("cudaMemcpy2DToArrayAsync"), ARGS_035, S0, S1, S2),
    runtime_2d(ptds!("cudaMemcpy2DFromArray"), ARGS_025, S0, S1, NONE),
    runtime_2d(ptsz!("cudaMemcpy2DFromArrayAsync"), ARGS_025, S0, S1, S2),
    copy(RUNTIME, only("cudaMemcpyPeer"), PEER, ARGS_024, NONE),
    copy(RUNTIME, only("cudaMemcpyPeerAsync"), PEER, ARGS_024, A5),
    runtime_set(ptds!("cudaMemset"), A2, NONE, NONE),
    runtime_set(ptsz!("cudaMemsetAsync"), A2, NONE, A3),
    runtime_set(ptds!("cudaMemset2D"), A3, A4, NONE),
    runtime_set(ptsz!("cudaMemset2DAsync"), A3, A4, A5),
    runtime_3d(ptds!("cudaMemcpy3D"), NONE),
    runtime_3d(ptsz!("cudaMemcpy3DAsync"), A1),
    by_addresses(RUNTIME, ptsz!("cudaMemcpyWithAttributesAsync"), A4),
    cuboids(
        RUNTIME,
        ptsz!("cudaMemcpy3DWithAttributesAsync"),
        NONE,
        A0,
        A2,
    ),
    prefetches(RUNTIME, ptsz!("cudaMemPrefetchBatchAsync")),
    prefetches(RUNTIME, ptsz!("cudaMemDiscardAndPrefetchBatchAsync")),
];
