//! Copy and memset functions of the runtime.

use super::copies::{A0, A1, A2, A3, A4, A5, Moves, NONE, copy, set};
use super::{CopyDirectionSource, Direction, EntryValue, Function, Layer};

/// A copy function with a `cudaMemcpyKind`.
const fn runtime(
    symbol: &'static str,
    variants: &'static [&'static str],
    moves: Moves,
    kind: EntryValue,
    stream: EntryValue,
) -> Function {
    Function {
        device: kind,
        ..copy(
            Layer::Runtime,
            symbol,
            variants,
            CopyDirectionSource::ByKind,
            moves,
            stream,
        )
    }
}

/// A two-dimensional copy function with a `cudaMemcpyKind`.
const fn runtime_2d(
    symbol: &'static str,
    variants: &'static [&'static str],
    moves: Moves,
    height: EntryValue,
    kind: EntryValue,
    stream: EntryValue,
) -> Function {
    Function {
        factors: [height, NONE],
        ..runtime(symbol, variants, moves, kind, stream)
    }
}

const fn runtime_set(
    symbol: &'static str,
    variants: &'static [&'static str],
    size: EntryValue,
    height: EntryValue,
    stream: EntryValue,
) -> Function {
    set(Layer::Runtime, symbol, variants, 1, size, height, stream)
}

/// A copy function with a `cudaMemcpy3DParms`. Between pointers its width is in bytes; with an
/// array it is in elements.
const fn runtime_3d(
    symbol: &'static str,
    variants: &'static [&'static str],
    stream: EntryValue,
) -> Function {
    let moves = Moves(A0.behind(96), A0.behind(32), A0.behind(128));
    Function {
        factors: [A0.behind(136), A0.behind(144)],
        unless: [A0.behind(0), A0.behind(64)],
        ..runtime(symbol, variants, moves, A0.bits32().behind(152), stream)
    }
}

pub(super) const RUNTIME_COPIES: &[Function] = &[
    runtime(
        "cudaMemcpy",
        &["cudaMemcpy_ptds"],
        Moves(A0, A1, A2),
        EntryValue::argument32(3),
        NONE,
    ),
    runtime(
        "cudaMemcpyAsync",
        &["cudaMemcpyAsync_ptsz"],
        Moves(A0, A1, A2),
        EntryValue::argument32(3),
        A4,
    ),
    runtime(
        "cudaMemcpyToSymbol",
        &["cudaMemcpyToSymbol_ptds"],
        Moves(A0, A1, A2),
        EntryValue::argument32(4),
        NONE,
    ),
    runtime(
        "cudaMemcpyToSymbolAsync",
        &["cudaMemcpyToSymbolAsync_ptsz"],
        Moves(A0, A1, A2),
        EntryValue::argument32(4),
        A5,
    ),
    runtime(
        "cudaMemcpyFromSymbol",
        &["cudaMemcpyFromSymbol_ptds"],
        Moves(A0, A1, A2),
        EntryValue::argument32(4),
        NONE,
    ),
    runtime(
        "cudaMemcpyFromSymbolAsync",
        &["cudaMemcpyFromSymbolAsync_ptsz"],
        Moves(A0, A1, A2),
        EntryValue::argument32(4),
        A5,
    ),
    runtime_2d(
        "cudaMemcpy2D",
        &["cudaMemcpy2D_ptds"],
        Moves(A0, A2, A4),
        A5,
        EntryValue::stack(0).bits32(),
        NONE,
    ),
    runtime_2d(
        "cudaMemcpy2DAsync",
        &["cudaMemcpy2DAsync_ptsz"],
        Moves(A0, A2, A4),
        A5,
        EntryValue::stack(0).bits32(),
        EntryValue::stack(1),
    ),
    runtime(
        "cudaMemcpyToArray",
        &["cudaMemcpyToArray_ptds"],
        Moves(A0, A3, A4),
        EntryValue::argument32(5),
        NONE,
    ),
    runtime(
        "cudaMemcpyFromArray",
        &["cudaMemcpyFromArray_ptds"],
        Moves(A0, A1, A4),
        EntryValue::argument32(5),
        NONE,
    ),
    runtime_2d(
        "cudaMemcpy2DToArray",
        &["cudaMemcpy2DToArray_ptds"],
        Moves(A0, A3, A5),
        EntryValue::stack(0),
        EntryValue::stack(1).bits32(),
        NONE,
    ),
    runtime_2d(
        "cudaMemcpy2DToArrayAsync",
        &["cudaMemcpy2DToArrayAsync_ptsz"],
        Moves(A0, A3, A5),
        EntryValue::stack(0),
        EntryValue::stack(1).bits32(),
        EntryValue::stack(2),
    ),
    runtime_2d(
        "cudaMemcpy2DFromArray",
        &["cudaMemcpy2DFromArray_ptds"],
        Moves(A0, A2, A5),
        EntryValue::stack(0),
        EntryValue::stack(1).bits32(),
        NONE,
    ),
    runtime_2d(
        "cudaMemcpy2DFromArrayAsync",
        &["cudaMemcpy2DFromArrayAsync_ptsz"],
        Moves(A0, A2, A5),
        EntryValue::stack(0),
        EntryValue::stack(1).bits32(),
        EntryValue::stack(2),
    ),
    copy(
        Layer::Runtime,
        "cudaMemcpyPeer",
        &[],
        CopyDirectionSource::Always(Direction::PeerToPeer),
        Moves(A0, A2, A4),
        NONE,
    ),
    copy(
        Layer::Runtime,
        "cudaMemcpyPeerAsync",
        &[],
        CopyDirectionSource::Always(Direction::PeerToPeer),
        Moves(A0, A2, A4),
        A5,
    ),
    runtime_set("cudaMemset", &["cudaMemset_ptds"], A2, NONE, NONE),
    runtime_set("cudaMemsetAsync", &["cudaMemsetAsync_ptsz"], A2, NONE, A3),
    runtime_set("cudaMemset2D", &["cudaMemset2D_ptds"], A3, A4, NONE),
    runtime_set("cudaMemset2DAsync", &["cudaMemset2DAsync_ptsz"], A3, A4, A5),
    runtime_3d("cudaMemcpy3D", &["cudaMemcpy3D_ptds"], NONE),
    runtime_3d("cudaMemcpy3DAsync", &["cudaMemcpy3DAsync_ptsz"], A1),
];
