//! The allocator's own state, from the reply to `tsnapshot`, and the expected figures.

use serde_json::{Value, json};

use crate::harness::report::{list, number};
use crate::harness::talk::Talk;

const MIB: u64 = 1 << 20;

/// A block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Requested bytes; 0 if it is free.
    pub(super) requested: u64,
    pub(super) is_live: bool,
}

/// Memory from CUDA, divided into blocks.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: u64,
    pub(super) is_small: bool,
    pub(super) is_expandable: bool,
    pub(super) blocks: Vec<Block>,
}

/// A device with memory requests.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) number: u64,
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    pub(super) requested: u64,
    pub(super) mallocs: u64,
    pub(super) frees: u64,
    pub(super) segments: Vec<Segment>,
}

/// All devices that were used.
pub(super) fn snapshot(talk: &mut Talk) -> Vec<Device> {
    let devices: Value = serde_json::from_str(&talk.say("tsnapshot")).unwrap();
    devices.as_array().unwrap().iter().map(device).collect()
}

fn device(told: &Value) -> Device {
    let device = Device {
        number: number(told, "device"),
        allocated: number(told, "allocated"),
        reserved: number(told, "reserved"),
        requested: number(told, "requested"),
        mallocs: number(told, "mallocs"),
        frees: number(told, "frees"),
        segments: list(told, "segments").iter().map(segment).collect(),
    };
    let live: u64 = device.live().map(|block| block.bytes).sum();
    assert_eq!(live, device.allocated, "blocks of {told}");
    device
}

fn segment(told: &Value) -> Segment {
    let blocks = list(told, "blocks").iter().map(|block| Block {
        address: number(block, "address"),
        bytes: number(block, "size"),
        requested: number(block, "requested_size"),
        is_live: block["state"] == "active_allocated",
    });
    Segment {
        address: number(told, "address"),
        bytes: number(told, "total_size"),
        stream: number(told, "stream"),
        is_small: told["segment_type"] == "small",
        is_expandable: told["is_expandable"] == true,
        blocks: blocks.collect(),
    }
}

impl Segment {
    /// Start and end of the range that is released to CUDA as a whole.
    fn pieces(&self) -> Vec<(u64, u64)> {
        let bytes = match (self.is_expandable, self.is_small) {
            (false, _) => self.bytes,
            (true, true) => 2 * MIB,
            (true, false) => 20 * MIB,
        };
        let pieces = (0..self.bytes / bytes).map(|n| self.address + n * bytes);
        pieces.map(|start| (start, start + bytes)).collect()
    }

    fn free(&self) -> impl Iterator<Item = u64> {
        let free = self.blocks.iter().filter(|block| !block.is_live);
        free.map(|block| block.bytes)
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.is_live)
    }
}

impl Device {
    pub(super) fn live(&self) -> impl Iterator<Item = &Block> {
        self.segments.iter().flat_map(Segment::live)
    }

    /// The report's figures for a program that was traced from the start with requested bytes
    /// known.
    pub(super) fn expected(&self) -> Value {
        let free = || self.segments.iter().flat_map(Segment::free);
        let fits = self.segments.iter().flat_map(|segment| {
            let most = if segment.is_small { MIB } else { u64::MAX };
            segment.free().map(move |free| free.min(most))
        });
        let mut unused = 0;
        let mut pinned = 0;
        let mut pinning = std::collections::BTreeSet::new();
        for segment in &self.segments {
            for (start, end) in segment.pieces() {
                let within =
                    |block: &&Block| block.address < end && start < block.address + block.bytes;
                let blocks: Vec<_> = segment.live().filter(within).collect();
                let part = |block: &&Block| {
                    (block.address + block.bytes).min(end) - block.address.max(start)
                };
                let used: u64 = blocks.iter().map(part).sum();
                if used == 0 {
                    unused += end - start;
                } else if used * 20 < end - start {
                    pinned += end - start;
                    pinning.extend(blocks.iter().map(|block| block.address));
                }
            }
        }
        json!({
            "device": self.number,
            "allocated_bytes": self.allocated,
            "reserved_bytes": self.reserved,
            "requested_bytes": self.requested,
            "tensors": self.live().count(),
            "before_bytes": 0,
            "since_start": true,
            "segments": self.segments.len(),
            "segment_bytes": self.segments.iter().map(|s| s.bytes).sum::<u64>(),
            "largest_free_bytes": free().max().unwrap_or(0),
            "largest_fit_bytes": fits.max().unwrap_or(0),
            "empty_cache_bytes": unused,
            "pinned_by_small_bytes": pinned,
            "pinned_by_tensors": pinning.len(),
            "outside_bytes": 0,
            "alloc_calls": self.mallocs,
            "free_calls": self.frees,
            "unknown_frees": 0,
        })
    }
}
