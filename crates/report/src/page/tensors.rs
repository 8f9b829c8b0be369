//! Tensors of frameworks' allocators by call site, and the map of their segments.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::memory::{FrameTable, HeldData, PathData, site_key};
use crate::Report;
use crate::analysis::Played;
use crate::label::labels;
use crate::memleak::{PytorchReport, SiteGroups, stack_of};
use crate::timeline::{MemorySums, PathKey, TensorPlace, Timeline, allocator_at};
use gpuprobe_engine::{Allocation, Allocator, Process};

/// Memory that no call site is known of.
const BEFORE: &str = "allocated before gpuprobe attached";
/// Limit on the blocks of a map; the smallest are left out.
const BLOCKS: usize = 50_000;
/// In place of the path of a block.
const UNKNOWN: i64 = -1;
const FREE: i64 = -2;

/// Tensors of an allocator.
#[derive(Debug, Serialize)]
pub(super) struct TensorsData {
    pid: u32,
    /// Device as the process numbers it.
    device: u16,
    /// State at the end, without call sites.
    report: Option<PytorchReport>,
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
    /// Four numbers a block: offset, bytes, index into the paths or -1 (unknown) or -2 (free), age in nanoseconds or
    /// -1.
    blocks: Vec<i64>,
}

/// The tensors of an allocator; ages are those at `end_ns` of the session.
pub(super) fn data(
    (pid, device): TensorPlace,
    [held_by_site, reserved]: &[Timeline<PathKey>; 2],
    (played, report, end_ns): (&Played, &Report, i64),
    frames: &mut FrameTable,
) -> Option<TensorsData> {
    let (process, allocator) = allocator_at(played, (pid, device))?;
    let processes = report.memleak.iter().flat_map(|memory| &memory.processes);
    let mut reports = processes
        .filter(|process| process.pid == pid)
        .flat_map(|process| process.pytorch.iter().chain(&process.tensorflow));
    let report = reports.find(|report| report.device == device);
    let (held, places) = held(held_by_site, (process, allocator), (played, report), frames);
    let age = |block: &Allocation| end_ns.saturating_sub(played.session_ns(block.end_ns));
    Some(TensorsData {
        pid,
        device,
        segments: segments(process, allocator, &places, age),
        report: report.map(|report| PytorchReport {
            sites: None,
            ..report.clone()
        }),
        held,
        reserved: reserved.highest().iter().map(|of| of.1).collect(),
    })
}

/// The call paths of an allocator, one a call site, and the place of each by the number of the engine.
fn held(
    timeline: &Timeline<PathKey>,
    (process, allocator): (&Process, &Allocator),
    (played, report): (&Played, Option<&PytorchReport>),
    frames: &mut FrameTable,
) -> (HeldData, HashMap<u32, usize>) {
    let (pid, symbols) = (process.pid, played.symbols());
    let groups = SiteGroups::of(&allocator.blocks, true, symbols);
    let mut places = HashMap::new();
    let mut found = Vec::new();
    for (number, site) in (0..).zip(allocator.blocks.sites.iter()) {
        // The number of the first site of the group.
        let id = groups.id(number);
        let known = places.get(&id).copied();
        places.insert(number, known.unwrap_or(found.len()));
        if known.is_none() {
            found.push((id, stack_of(pid, site, symbols).0));
        }
    }
    let mut sums = vec![MemorySums::default(); found.len() + 1];
    for (key, own) in timeline.sums() {
        let place = key.number.and_then(|number| places.get(&number));
        sums[place.copied().unwrap_or(found.len())].merge(own);
    }
    let stacks: Vec<_> = found.iter().map(|(_, stack)| (&stack[..], "")).collect();
    let labels = found.iter().zip(labels(stacks));
    let mut sites: BTreeMap<_, _> = labels
        .map(|((id, _), label)| (site_key(pid, *id), label))
        .collect();
    // As in reports, of the call sites that they list.
    let listed = report
        .into_iter()
        .flat_map(|report| &report.sites)
        .flatten();
    sites.extend(listed.map(|site| (site_key(pid, site.id), site.label.clone())));
    let known = found.into_iter().map(|(id, stack)| PathData {
        site: Some(id),
        stack: frames.stack(stack, None),
        ..PathData::default()
    });
    let before = PathData {
        function: BEFORE.to_owned(),
        ..PathData::default()
    };
    let paths = known
        .chain([before])
        .zip(sums)
        .map(|(path, sums)| PathData {
            pid,
            kind: "tensors",
            changes: sums.flat(),
            ..path
        });
    let held = HeldData {
        bins: timeline.highest(),
        paths: paths.collect(),
        sites,
    };
    (held, places)
}

/// The segments of an allocator with their blocks; `age_of` gives ages in nanoseconds.
fn segments(
    process: &Process,
    allocator: &Allocator,
    places: &HashMap<u32, usize>,
    age_of: impl Fn(&Allocation) -> i64,
) -> Vec<SegmentData> {
    let mut blocks: Vec<_> = allocator.blocks.allocations().collect();
    blocks.sort_unstable_by_key(|block| block.address);
    let mut sizes: Vec<_> = blocks
        .iter()
        .map(|block| Reverse(block.size_bytes))
        .collect();
    sizes.sort_unstable();
    let least = sizes.get(BLOCKS).map_or(0, |Reverse(bytes)| *bytes + 1);
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let segments = allocator.fragmentation(process).segments.into_iter();
    let segments = segments.map(|segment| {
        let end = segment.address.saturating_add(segment.bytes);
        let first = blocks.partition_point(|block| block.address < segment.address);
        let last = blocks.partition_point(|block| block.address < end);
        let mut flat = Vec::new();
        let mut next = segment.address;
        let mut push = |from: u64, to: u64, path: i64, age_ns: i64| {
            if to > from {
                let (offset, bytes) = (number(from - segment.address), number(to - from));
                flat.extend([offset, bytes, path, age_ns]);
            }
        };
        for block in &blocks[first..last] {
            let block_end = block.address.saturating_add(block.size_bytes);
            push(next, block.address, FREE, -1);
            next = next.max(block_end);
            if block.size_bytes >= least {
                let path = places
                    .get(&block.site)
                    .map_or(UNKNOWN, |place| *place as i64);
                push(block.address, block_end, path, age_of(block));
            }
        }
        push(next, end, FREE, -1);
        SegmentData {
            address: format!("{:#x}", segment.address),
            bytes: segment.bytes,
            blocks: flat,
        }
    });
    segments.collect()
}
