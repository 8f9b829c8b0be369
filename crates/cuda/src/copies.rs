//! Copy and memset functions of the driver. The struct offsets are those of `CUDA_MEMCPY2D` and
//! `CUDA_MEMCPY3D`, which are equal in CUDA 11.8 to 13.

use super::table::row;
use super::{CopyDirectionSource, Direction, EntryValue, Function, LaunchShape, Layer, Op};

pub(super) const NONE: EntryValue = EntryValue::NONE;
pub(super) const A0: EntryValue = EntryValue::argument(0);
pub(super) const A1: EntryValue = EntryValue::argument(1);
pub(super) const A2: EntryValue = EntryValue::argument(2);
pub(super) const A3: EntryValue = EntryValue::argument(3);
pub(super) const A4: EntryValue = EntryValue::argument(4);
pub(super) const A5: EntryValue = EntryValue::argument(5);

/// Destination, source and number of bytes.
#[derive(Clone, Copy)]
pub(super) struct Moves(
    pub(super) EntryValue,
    pub(super) EntryValue,
    pub(super) EntryValue,
);

/// A copy function; it is asynchronous if it has a `stream`.
pub(super) const fn copy(
    layer: Layer,
    symbol: &'static str,
    variants: &'static [&'static str],
    direction: CopyDirectionSource,
    moves: Moves,
    stream: EntryValue,
) -> Function {
    Function {
        variants,
        address: moves.0,
        out: moves.1,
        size: moves.2,
        stream,
        direction,
        shape: match direction {
            CopyDirectionSource::ByAddresses => LaunchShape::Addresses,
            CopyDirectionSource::ByKind
            | CopyDirectionSource::ByTypes
            | CopyDirectionSource::Always(_) => LaunchShape::None,
        },
        is_async: !matches!(stream.place, super::ArgumentPlace::None),
        ..row(layer, Op::Copy, symbol)
    }
}

const fn driver(
    symbol: &'static str,
    variants: &'static [&'static str],
    direction: Direction,
    moves: Moves,
    stream: EntryValue,
) -> Function {
    copy(
        Layer::Driver,
        symbol,
        variants,
        CopyDirectionSource::Always(direction),
        moves,
        stream,
    )
}

const fn by_addresses(
    symbol: &'static str,
    variants: &'static [&'static str],
    stream: EntryValue,
) -> Function {
    let moves = Moves(A0, A1, A2);
    copy(
        Layer::Driver,
        symbol,
        variants,
        CopyDirectionSource::ByAddresses,
        moves,
        stream,
    )
}

/// A copy function with a `CUDA_MEMCPY2D`.
const fn rectangle(
    symbol: &'static str,
    variants: &'static [&'static str],
    stream: EntryValue,
) -> Function {
    let moves = Moves(A0.behind(88), A0.behind(32), A0.behind(112));
    Function {
        device: EntryValue::argument(0).bits32().behind(16),
        second: EntryValue::argument(0).bits32().behind(72),
        factors: [A0.behind(120), NONE],
        ..copy(
            Layer::Driver,
            symbol,
            variants,
            CopyDirectionSource::ByTypes,
            moves,
            stream,
        )
    }
}

/// A copy function with a `CUDA_MEMCPY3D` or, with the same offsets, a `CUDA_MEMCPY3D_PEER`.
const fn cuboid(
    symbol: &'static str,
    variants: &'static [&'static str],
    direction: CopyDirectionSource,
    stream: EntryValue,
) -> Function {
    let moves = Moves(A0.behind(136), A0.behind(48), A0.behind(176));
    let typed = matches!(direction, CopyDirectionSource::ByTypes);
    Function {
        device: if typed { A0.bits32().behind(32) } else { NONE },
        second: if typed { A0.bits32().behind(120) } else { NONE },
        factors: [A0.behind(184), A0.behind(192)],
        ..copy(Layer::Driver, symbol, variants, direction, moves, stream)
    }
}

const fn batch(
    symbol: &'static str,
    variants: &'static [&'static str],
    stream: EntryValue,
) -> Function {
    Function {
        // The copies of a batch may have different directions.
        factors: [A3, NONE],
        op: Op::CopyBatch,
        ..driver(
            symbol,
            variants,
            Direction::Unknown,
            Moves(A0, A1, A2),
            stream,
        )
    }
}

/// A function that takes a batch of `CUDA_MEMCPY3D_BATCH_OP`.
const fn batch_of_cuboids(
    symbol: &'static str,
    variants: &'static [&'static str],
    stream: EntryValue,
) -> Function {
    let moves = Moves(NONE, NONE, A1);
    Function {
        factors: [A0, NONE],
        op: Op::CopyBatch,
        shape: LaunchShape::Cuboids,
        ..driver(symbol, variants, Direction::Unknown, moves, stream)
    }
}

/// A memset function: sets `size` units of `scale` bytes, times `height` if it is two-dimensional.
pub(super) const fn set(
    layer: Layer,
    symbol: &'static str,
    variants: &'static [&'static str],
    scale: u8,
    size: EntryValue,
    height: EntryValue,
    stream: EntryValue,
) -> Function {
    Function {
        scale,
        factors: [height, NONE],
        ..copy(
            layer,
            symbol,
            variants,
            CopyDirectionSource::Always(Direction::Set),
            Moves(A0, NONE, size),
            stream,
        )
    }
}

const fn driver_set(
    symbol: &'static str,
    variants: &'static [&'static str],
    scale: u8,
    height: EntryValue,
    stream: EntryValue,
) -> Function {
    let size = if matches!(height.place, super::ArgumentPlace::None) {
        A2
    } else {
        A3
    };
    set(Layer::Driver, symbol, variants, scale, size, height, stream)
}

pub(super) const DRIVER_COPIES: &[Function] = &[
    by_addresses("cuMemcpy", &["cuMemcpy_ptds"], NONE),
    by_addresses("cuMemcpyAsync", &["cuMemcpyAsync_ptsz"], A3),
    driver(
        "cuMemcpyHtoD_v2",
        &["cuMemcpyHtoD_v2_ptds"],
        Direction::HostToDevice,
        Moves(A0, A1, A2),
        NONE,
    ),
    driver(
        "cuMemcpyHtoDAsync_v2",
        &["cuMemcpyHtoDAsync_v2_ptsz"],
        Direction::HostToDevice,
        Moves(A0, A1, A2),
        A3,
    ),
    driver(
        "cuMemcpyDtoH_v2",
        &["cuMemcpyDtoH_v2_ptds"],
        Direction::DeviceToHost,
        Moves(A0, A1, A2),
        NONE,
    ),
    driver(
        "cuMemcpyDtoHAsync_v2",
        &["cuMemcpyDtoHAsync_v2_ptsz"],
        Direction::DeviceToHost,
        Moves(A0, A1, A2),
        A3,
    ),
    driver(
        "cuMemcpyDtoD_v2",
        &["cuMemcpyDtoD_v2_ptds"],
        Direction::DeviceToDevice,
        Moves(A0, A1, A2),
        NONE,
    ),
    driver(
        "cuMemcpyDtoDAsync_v2",
        &["cuMemcpyDtoDAsync_v2_ptsz"],
        Direction::DeviceToDevice,
        Moves(A0, A1, A2),
        A3,
    ),
    driver(
        "cuMemcpyHtoA_v2",
        &["cuMemcpyHtoA_v2_ptds"],
        Direction::HostToArray,
        Moves(A0, A2, A3),
        NONE,
    ),
    driver(
        "cuMemcpyHtoAAsync_v2",
        &["cuMemcpyHtoAAsync_v2_ptsz"],
        Direction::HostToArray,
        Moves(A0, A2, A3),
        A4,
    ),
    driver(
        "cuMemcpyAtoH_v2",
        &["cuMemcpyAtoH_v2_ptds"],
        Direction::ArrayToHost,
        Moves(A0, A1, A3),
        NONE,
    ),
    driver(
        "cuMemcpyAtoHAsync_v2",
        &["cuMemcpyAtoHAsync_v2_ptsz"],
        Direction::ArrayToHost,
        Moves(A0, A1, A3),
        A4,
    ),
    driver(
        "cuMemcpyDtoA_v2",
        &["cuMemcpyDtoA_v2_ptds"],
        Direction::DeviceToArray,
        Moves(A0, A2, A3),
        NONE,
    ),
    driver(
        "cuMemcpyAtoD_v2",
        &["cuMemcpyAtoD_v2_ptds"],
        Direction::ArrayToDevice,
        Moves(A0, A1, A3),
        NONE,
    ),
    driver(
        "cuMemcpyAtoA_v2",
        &["cuMemcpyAtoA_v2_ptds"],
        Direction::ArrayToArray,
        Moves(A0, A2, A4),
        NONE,
    ),
    driver(
        "cuMemcpyPeer",
        &["cuMemcpyPeer_ptds"],
        Direction::PeerToPeer,
        Moves(A0, A2, A4),
        NONE,
    ),
    driver(
        "cuMemcpyPeerAsync",
        &["cuMemcpyPeerAsync_ptsz"],
        Direction::PeerToPeer,
        Moves(A0, A2, A4),
        A5,
    ),
    rectangle("cuMemcpy2D_v2", &["cuMemcpy2D_v2_ptds"], NONE),
    rectangle(
        "cuMemcpy2DUnaligned_v2",
        &["cuMemcpy2DUnaligned_v2_ptds"],
        NONE,
    ),
    rectangle("cuMemcpy2DAsync_v2", &["cuMemcpy2DAsync_v2_ptsz"], A1),
    cuboid(
        "cuMemcpy3D_v2",
        &["cuMemcpy3D_v2_ptds"],
        CopyDirectionSource::ByTypes,
        NONE,
    ),
    cuboid(
        "cuMemcpy3DAsync_v2",
        &["cuMemcpy3DAsync_v2_ptsz"],
        CopyDirectionSource::ByTypes,
        A1,
    ),
    cuboid(
        "cuMemcpy3DPeer",
        &["cuMemcpy3DPeer_ptds"],
        CopyDirectionSource::Always(Direction::PeerToPeer),
        NONE,
    ),
    cuboid(
        "cuMemcpy3DPeerAsync",
        &["cuMemcpy3DPeerAsync_ptsz"],
        CopyDirectionSource::Always(Direction::PeerToPeer),
        A1,
    ),
    batch(
        "cuMemcpyBatchAsync",
        &["cuMemcpyBatchAsync_ptsz"],
        EntryValue::stack(2),
    ),
    batch(
        "cuMemcpyBatchAsync_v2",
        &["cuMemcpyBatchAsync_v2_ptsz"],
        EntryValue::stack(1),
    ),
    batch_of_cuboids("cuMemcpy3DBatchAsync", &["cuMemcpy3DBatchAsync_ptsz"], A4),
    batch_of_cuboids(
        "cuMemcpy3DBatchAsync_v2",
        &["cuMemcpy3DBatchAsync_v2_ptsz"],
        A3,
    ),
    driver_set("cuMemsetD8_v2", &["cuMemsetD8_v2_ptds"], 1, NONE, NONE),
    driver_set("cuMemsetD8Async", &["cuMemsetD8Async_ptsz"], 1, NONE, A3),
    driver_set("cuMemsetD2D8_v2", &["cuMemsetD2D8_v2_ptds"], 1, A4, NONE),
    driver_set("cuMemsetD2D8Async", &["cuMemsetD2D8Async_ptsz"], 1, A4, A5),
    driver_set("cuMemsetD16_v2", &["cuMemsetD16_v2_ptds"], 2, NONE, NONE),
    driver_set("cuMemsetD16Async", &["cuMemsetD16Async_ptsz"], 2, NONE, A3),
    driver_set("cuMemsetD2D16_v2", &["cuMemsetD2D16_v2_ptds"], 2, A4, NONE),
    driver_set(
        "cuMemsetD2D16Async",
        &["cuMemsetD2D16Async_ptsz"],
        2,
        A4,
        A5,
    ),
    driver_set("cuMemsetD32_v2", &["cuMemsetD32_v2_ptds"], 4, NONE, NONE),
    driver_set("cuMemsetD32Async", &["cuMemsetD32Async_ptsz"], 4, NONE, A3),
    driver_set("cuMemsetD2D32_v2", &["cuMemsetD2D32_v2_ptds"], 4, A4, NONE),
    driver_set(
        "cuMemsetD2D32Async",
        &["cuMemsetD2D32Async_ptsz"],
        4,
        A4,
        A5,
    ),
];
