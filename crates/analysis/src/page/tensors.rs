//! Tensors of frameworks' allocators by call site, and the map of their segments.

use std::cmp::Reverse;

use serde::Serialize;

use super::memory::{FrameTable, HeldData, held};
use crate::Played;
use crate::timeline::{PathKey, TensorPlace, Timeline, allocator_at};
use gpuprobe_engine::{Allocation, Allocator, Process};
use gpuprobe_report::Report;
use gpuprobe_report::memleak::AllocatorReport;

/// Limit on the blocks of a map; the smallest are left out.
const BLOCKS: usize = 50_000;
/// In place of the path of a block.
const UNKNOWN: i64 = -1;
/// In place of path and age: of a free block, and of one that is free once a stream has passed.
const FREE: [i64; 2] = [-2, -1];
const PENDING: [i64; 2] = [-3, -1];

/// Tensors of an allocator.
#[derive(Debug, Serialize)]
pub(super) struct TensorsData {
    pid: u32,
    /// Device as the process numbers it.
    device: u16,
    /// State at the end, without call sites.
    report: Option<AllocatorReport>,
    #[serde(flatten)]
    held: HeldData,
    /// The most bytes reserved within each bin.
    reserved: Vec<u64>,
    segments: Vec<SegmentData>,
}

#[derive(Debug, Serialize)]
struct SegmentData {
    /// Address of its first byte.
    address: String,
    bytes: u64,
    /// Four numbers a block: offset, bytes, index into the paths or -1 (unknown), -2 (free) or -3 (freed, until a stream
    /// has passed), age in nanoseconds or -1.
    blocks: Vec<i64>,
}

/// The tensors of an allocator; ages are those at `end_ns` of the session.
pub(super) fn data(
    place: TensorPlace,
    [handed_out, reserved]: &[Timeline<PathKey>; 2],
    (played, report, end_ns): (&Played, &Report, i64),
    frames: &mut FrameTable,
) -> Option<TensorsData> {
    let (pid, device) = place;
    let (process, allocator) = allocator_at(played, place)?;
    let processes = report.memleak.iter().flat_map(|memory| &memory.processes);
    let mut reports = processes
        .filter(|process| process.who.pid == pid)
        .flat_map(|process| &process.allocators);
    let report = reports.find(|report| report.device == device);
    let listed = report.iter().flat_map(|report| &report.lists.sites);
    let listed = listed.flatten().map(|site| (pid, site));
    let (held, places) = held(handed_out, played, listed, frames);
    let path = |block: &Allocation| {
        let place = places.get(&PathKey::tensor(place, Some(block.site)));
        place.map_or(UNKNOWN, |place| *place as i64)
    };
    let age = |block: &Allocation| end_ns.saturating_sub(played.session_ns(block.end_ns));
    Some(TensorsData {
        pid,
        device,
        segments: segments(process, allocator, |block| [path(block), age(block)]),
        report: report.map(|report| {
            let mut report = report.clone();
            report.lists.sites = None;
            report
        }),
        held,
        reserved: reserved.highest().iter().map(|of| of.1).collect(),
    })
}

/// The segments of an allocator with their blocks, of which `describe` gives the path and the age in nanoseconds.
fn segments(
    process: &Process,
    allocator: &Allocator,
    describe: impl Fn(&Allocation) -> [i64; 2],
) -> Vec<SegmentData> {
    let live = allocator.blocks.allocations();
    let live = live.map(|block| (block.address, block.size_bytes, describe(block)));
    let pending = allocator.pending_frees();
    let mut blocks: Vec<_> = live
        .chain(pending.map(|(address, bytes)| (address, bytes, PENDING)))
        .collect();
    blocks.sort_unstable();
    let mut sizes: Vec<_> = blocks.iter().map(|(_, bytes, _)| *bytes).collect();
    sizes.sort_unstable_by_key(|bytes| Reverse(*bytes));
    let least = sizes.get(BLOCKS).map_or(0, |bytes| *bytes + 1);
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let segments = allocator.fragmentation(process).segments.into_iter();
    let segments = segments.map(|segment| {
        let end = segment.address.saturating_add(segment.bytes);
        let first = blocks.partition_point(|block| block.0 < segment.address);
        let last = blocks.partition_point(|block| block.0 < end);
        let mut flat = Vec::new();
        let mut next = segment.address;
        let mut push = |from: u64, to: u64, [path, age_ns]: [i64; 2]| {
            if to > from {
                let (offset, bytes) = (number(from - segment.address), number(to - from));
                flat.extend([offset, bytes, path, age_ns]);
            }
        };
        for &(address, size_bytes, description) in &blocks[first..last] {
            let block_end = address.saturating_add(size_bytes);
            push(next, address, FREE);
            next = next.max(block_end);
            if size_bytes >= least {
                push(address, block_end, description);
            }
        }
        push(next, end, FREE);
        SegmentData {
            address: format!("{:#x}", segment.address),
            bytes: segment.bytes,
            blocks: flat,
        }
    });
    segments.collect()
}
