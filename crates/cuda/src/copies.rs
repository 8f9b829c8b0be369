//! Copy, prefetch and memset functions of the driver. The struct offsets are those of `CUDA_MEMCPY2D` and
//! `CUDA_MEMCPY3D`, which are equal in CUDA 11.8 to 13.5.

use super::table::{A0, A1, A2, A3, A4, A5, DRIVER, NONE, Names, S1, S2, ptds, ptsz, row};
use super::{CopyDirectionSource, Direction, EntryValue, Function, LaunchShape, Layer, Op};
use CopyDirectionSource::{Always, ByAddresses, ByDevice, ByKind, ByLocation, ByTypes};
use Direction::{
    ArrayToArray, ArrayToDevice, ArrayToHost, DeviceToArray, DeviceToDevice, DeviceToHost,
    HostToArray, HostToDevice, PeerToPeer, Set,
};

/// Destination, source and number of bytes.
#[derive(Clone, Copy)]
pub(super) struct Moves(
    pub(super) EntryValue,
    pub(super) EntryValue,
    pub(super) EntryValue,
);

pub(super) const ARGS_012: Moves = Moves(A0, A1, A2);
const ARGS_013: Moves = Moves(A0, A1, A3);
const ARGS_023: Moves = Moves(A0, A2, A3);
pub(super) const ARGS_024: Moves = Moves(A0, A2, A4);
pub(super) const PEER: CopyDirectionSource = Always(PeerToPeer);

/// A copy function; it is asynchronous if it has a `stream`.
pub(super) const fn copy(
    layer: Layer,
    names: Names,
    direction: CopyDirectionSource,
    moves: Moves,
    stream: EntryValue,
) -> Function {
    Function {
        address: moves.0,
        out: moves.1,
        size: moves.2,
        stream,
        direction,
        shape: match direction {
            ByAddresses => LaunchShape::Addresses,
            ByKind | ByTypes | ByDevice | ByLocation | Always(_) => LaunchShape::None,
        },
        is_async: stream.is_there(),
        ..row(layer, Op::Copy, names)
    }
}

const fn driver(names: Names, direction: Direction, moves: Moves, stream: EntryValue) -> Function {
    copy(DRIVER, names, Always(direction), moves, stream)
}

/// A copy function with unified addresses.
pub(super) const fn by_addresses(layer: Layer, names: Names, stream: EntryValue) -> Function {
    copy(layer, names, ByAddresses, ARGS_012, stream)
}

/// A copy function with a `CUDA_MEMCPY2D`.
const fn rectangle(names: Names, stream: EntryValue) -> Function {
    let moves = Moves(A0.behind(88), A0.behind(32), A0.behind(112));
    Function {
        device: A0.bits32().behind(16),
        second: A0.bits32().behind(72),
        factors: [A0.behind(120), NONE],
        ..copy(DRIVER, names, ByTypes, moves, stream)
    }
}

/// A copy function with a `CUDA_MEMCPY3D` or, with the same offsets, a `CUDA_MEMCPY3D_PEER`.
const fn cuboid(names: Names, direction: CopyDirectionSource, stream: EntryValue) -> Function {
    let moves = Moves(A0.behind(136), A0.behind(48), A0.behind(176));
    let typed = matches!(direction, ByTypes);
    Function {
        device: if typed { A0.bits32().behind(32) } else { NONE },
        second: if typed { A0.bits32().behind(120) } else { NONE },
        factors: [A0.behind(184), A0.behind(192)],
        ..copy(DRIVER, names, direction, moves, stream)
    }
}

/// A function that takes arrays of destinations, sources and sizes.
const fn batch(names: Names, stream: EntryValue) -> Function {
    Function {
        factors: [A3, NONE],
        op: Op::CopyBatch,
        ..by_addresses(DRIVER, names, stream)
    }
}

/// A function that takes `count` (without one, a single) `CUDA_MEMCPY3D_BATCH_OP`.
pub(super) const fn cuboids(
    layer: Layer,
    names: Names,
    count: EntryValue,
    operations: EntryValue,
    stream: EntryValue,
) -> Function {
    let moves = Moves(NONE, NONE, operations);
    Function {
        factors: [count, NONE],
        op: Op::CopyBatch,
        shape: LaunchShape::Cuboids,
        ..copy(layer, names, ByAddresses, moves, stream)
    }
}

/// Prefetches argument 1 bytes of managed memory to the destination in argument 2.
const fn prefetch(names: Names, direction: CopyDirectionSource, stream: EntryValue) -> Function {
    Function {
        device: A2.bits32(),
        ..copy(DRIVER, names, direction, Moves(A0, NONE, A1), stream)
    }
}

/// A function that prefetches a batch. With more than one location, the directions are unknown.
pub(super) const fn prefetches(layer: Layer, names: Names) -> Function {
    Function {
        device: A3.behind(0).bits32(),
        factors: [A2, A5],
        op: Op::CopyBatch,
        ..copy(layer, names, ByLocation, Moves(A0, NONE, A1), S1)
    }
}

/// A memset function: sets `size` units of `scale` bytes, times `height` if it is two-dimensional.
pub(super) const fn set(
    layer: Layer,
    names: Names,
    scale: u8,
    size: EntryValue,
    height: EntryValue,
    stream: EntryValue,
) -> Function {
    Function {
        scale,
        factors: [height, NONE],
        ..copy(layer, names, Always(Set), Moves(A0, NONE, size), stream)
    }
}

const fn driver_set(names: Names, scale: u8, height: EntryValue, stream: EntryValue) -> Function {
    let size = if height.is_there() { A3 } else { A2 };
    set(DRIVER, names, scale, size, height, stream)
}

pub(super) const DRIVER_COPIES: &[Function] = &[
    by_addresses(DRIVER, ptds!("cuMemcpy"), NONE),
    by_addresses(DRIVER, ptsz!("cuMemcpyAsync"), A3),
    by_addresses(DRIVER, ptsz!("cuMemcpyWithAttributesAsync"), A4),
    driver(ptds!("cuMemcpyHtoD_v2"), HostToDevice, ARGS_012, NONE),
    driver(ptsz!("cuMemcpyHtoDAsync_v2"), HostToDevice, ARGS_012, A3),
    driver(ptds!("cuMemcpyDtoH_v2"), DeviceToHost, ARGS_012, NONE),
    driver(ptsz!("cuMemcpyDtoHAsync_v2"), DeviceToHost, ARGS_012, A3),
    driver(ptds!("cuMemcpyDtoD_v2"), DeviceToDevice, ARGS_012, NONE),
    driver(ptsz!("cuMemcpyDtoDAsync_v2"), DeviceToDevice, ARGS_012, A3),
    driver(ptds!("cuMemcpyHtoA_v2"), HostToArray, ARGS_023, NONE),
    driver(ptsz!("cuMemcpyHtoAAsync_v2"), HostToArray, ARGS_023, A4),
    driver(ptds!("cuMemcpyAtoH_v2"), ArrayToHost, ARGS_013, NONE),
    driver(ptsz!("cuMemcpyAtoHAsync_v2"), ArrayToHost, ARGS_013, A4),
    driver(ptds!("cuMemcpyDtoA_v2"), DeviceToArray, ARGS_023, NONE),
    driver(ptds!("cuMemcpyAtoD_v2"), ArrayToDevice, ARGS_013, NONE),
    driver(ptds!("cuMemcpyAtoA_v2"), ArrayToArray, ARGS_024, NONE),
    driver(ptds!("cuMemcpyPeer"), PeerToPeer, ARGS_024, NONE),
    driver(ptsz!("cuMemcpyPeerAsync"), PeerToPeer, ARGS_024, A5),
    rectangle(ptds!("cuMemcpy2D_v2"), NONE),
    rectangle(ptds!("cuMemcpy2DUnaligned_v2"), NONE),
    rectangle(ptsz!("cuMemcpy2DAsync_v2"), A1),
    cuboid(ptds!("cuMemcpy3D_v2"), ByTypes, NONE),
    cuboid(ptsz!("cuMemcpy3DAsync_v2"), ByTypes, A1),
    cuboid(ptds!("cuMemcpy3DPeer"), PEER, NONE),
    cuboid(ptsz!("cuMemcpy3DPeerAsync"), PEER, A1),
    batch(ptsz!("cuMemcpyBatchAsync"), S2),
    batch(ptsz!("cuMemcpyBatchAsync_v2"), S1),
    cuboids(DRIVER, ptsz!("cuMemcpy3DBatchAsync"), A0, A1, A4),
    cuboids(DRIVER, ptsz!("cuMemcpy3DBatchAsync_v2"), A0, A1, A3),
    cuboids(DRIVER, ptsz!("cuMemcpy3DWithAttributesAsync"), NONE, A0, A2),
    prefetch(ptsz!("cuMemPrefetchAsync"), ByDevice, A3),
    prefetch(ptsz!("cuMemPrefetchAsync_v2"), ByLocation, A4),
    prefetches(DRIVER, ptsz!("cuMemPrefetchBatchAsync")),
    prefetches(DRIVER, ptsz!("cuMemDiscardAndPrefetchBatchAsync")),
    driver_set(ptds!("cuMemsetD8_v2"), 1, NONE, NONE),
    driver_set(ptsz!("cuMemsetD8Async"), 1, NONE, A3),
    driver_set(ptds!("cuMemsetD2D8_v2"), 1, A4, NONE),
    driver_set(ptsz!("cuMemsetD2D8Async"), 1, A4, A5),
    driver_set(ptds!("cuMemsetD16_v2"), 2, NONE, NONE),
    driver_set(ptsz!("cuMemsetD16Async"), 2, NONE, A3),
    driver_set(ptds!("cuMemsetD2D16_v2"), 2, A4, NONE),
    driver_set(ptsz!("cuMemsetD2D16Async"), 2, A4, A5),
    driver_set(ptds!("cuMemsetD32_v2"), 4, NONE, NONE),
    driver_set(ptsz!("cuMemsetD32Async"), 4, NONE, A3),
    driver_set(ptds!("cuMemsetD2D32_v2"), 4, A4, NONE),
    driver_set(ptsz!("cuMemsetD2D32Async"), 4, A4, A5),
];
