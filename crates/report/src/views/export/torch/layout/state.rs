//! Queries on the current memory.

use std::ops::Range;

use rangemap::RangeSet;

use super::{
    AllocatorState, DeviceLayout, LiveBlock, NO_STREAM, STREAM_UNKNOWN, SegmentChange,
    SnapshotBlock,
};
use crate::views::export::torch::names::{Owner, StackId};

/// Size of PyTorch's segments for small blocks; those for large blocks are larger. `kSmallBuffer`
/// of `CUDACachingAllocator.cpp`.
const SMALL_SEGMENT: u64 = 2 << 20;

/// A segment of a snapshot: an allocation, or a run of mappings without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Run {
    pub(in super::super) address: u64,
    pub(in super::super) bytes: u64,
    pub(in super::super) is_expandable: bool,
    pub(in super::super) is_small: bool,
    pub(in super::super) stream: i64,
    pub(in super::super) stack: StackId,
    pub(in super::super) owner: Owner,
    /// Whether it is an allocation, which does not merge with what follows.
    is_whole: bool,
    /// Reserved address range of its last mapping, if known.
    range: Option<u64>,
}

/// A part of a segment: a block, or the free memory between two.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Tile<'a> {
    pub(in super::super) address: u64,
    pub(in super::super) bytes: u64,
    pub(in super::super) block: Option<&'a SnapshotBlock>,
}

impl Run {
    fn of(address: u64, held: &LiveBlock) -> Self {
        let segment = held.segment;
        let is_torch = segment.owner == Owner::PYTORCH;
        let range = match segment.piece {
            SegmentChange::Mapped(range) => Some(range),
            SegmentChange::Whole => None,
        };
        Self {
            address,
            bytes: segment.bytes,
            is_expandable: is_torch && range.is_some(),
            is_small: segment.bytes <= SMALL_SEGMENT,
            stream: match is_torch {
                true => held.stream.unwrap_or(0),
                false => NO_STREAM,
            },
            stack: segment.stack,
            owner: segment.owner,
            is_whole: !is_torch || range.is_none(),
            range,
        }
    }

    fn from_before(range: &Range<u64>) -> Self {
        let bytes = range.end - range.start;
        Self {
            address: range.start,
            bytes,
            is_expandable: false,
            is_small: bytes <= SMALL_SEGMENT,
            stream: STREAM_UNKNOWN,
            stack: StackId::NONE,
            owner: Owner::PYTORCH,
            is_whole: false,
            range: None,
        }
    }

    fn end(&self) -> u64 {
        self.address + self.bytes
    }

    /// Appends `next` if both are one run.
    fn grow(&mut self, next: &Self) -> bool {
        let is_same = match (self.range, next.range) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let grows = self.end() == next.address && !self.is_whole && !next.is_whole && is_same;
        if grows {
            self.bytes += next.bytes;
            self.is_expandable |= next.is_expandable;
            self.range = next.range;
            if next.stream == STREAM_UNKNOWN {
                self.stream = STREAM_UNKNOWN;
            }
        }
        grows
    }
}

impl DeviceLayout {
    /// Start addresses of the segments that overlap `range`.
    pub(super) fn segments_in(&self, range: &Range<u64>) -> Vec<u64> {
        self.held_in(range).map(|(address, _)| address).collect()
    }

    fn held_in(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &LiveBlock)> {
        let before = self.segments.range(..range.start).next_back();
        let start = range.start;
        let reaches =
            move |(address, held): &(&u64, &LiveBlock)| start - **address < held.segment.bytes;
        let within = self.segments.range(range.clone());
        let all = before.filter(reaches).into_iter().chain(within);
        all.map(|(&address, held)| (address, held))
    }

    /// Start addresses of the blocks that overlap `range`.
    pub(super) fn blocks_in(&self, range: &Range<u64>) -> Vec<u64> {
        let before = self.blocks.range(..range.start).next_back();
        let before = before.filter(|(address, block)| range.start - **address < block.bytes);
        let within = self.blocks.range(range.clone());
        let all = before.into_iter().chain(within);
        all.map(|(&address, _)| address).collect()
    }

    /// Whether a tensor can be here: within one allocation, within mappings of one reserved range,
    /// or where nothing is known.
    pub(super) fn may_have_tensor(&self, range: &Range<u64>) -> bool {
        let mut mapped_in = None;
        self.held_in(range).all(|(address, held)| {
            let end = address + held.segment.bytes;
            let fits = match held.segment.piece {
                SegmentChange::Whole => address <= range.start && range.end <= end,
                SegmentChange::Mapped(of) => *mapped_in.get_or_insert(of) == of,
            };
            fits && held.segment.owner == Owner::PYTORCH
        })
    }

    /// The parts of `range` that are in no known memory.
    pub(super) fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut known = RangeSet::new();
        for (address, held) in self.held_in(range) {
            known.insert(address..address + held.segment.bytes);
        }
        known.extend(self.unseen.overlapping(range).cloned());
        known.gaps(range).collect()
    }

    /// Notes a tensor in this range.
    pub(super) fn note_tensor(&mut self, range: &Range<u64>) {
        for address in self.segments_in(range) {
            if let Some(held) = self.segments.get_mut(&address)
                && !held.has_tensors
            {
                held.has_tensors = true;
                self.found.segments.push(held.segment.number);
                if let SegmentChange::Mapped(range) = held.segment.piece {
                    self.found.ranges.push(range);
                }
            }
        }
    }

    /// The memory found to be PyTorch's.
    pub(in super::super) fn found(self) -> AllocatorState {
        self.found
    }

    /// Bytes of known GPU memory, and of PyTorch's memory beyond it.
    pub(in super::super) fn at_gpu(&self) -> (u64, u64) {
        let bytes = |is_it: fn(&LiveBlock) -> bool| -> u64 {
            let held = self.segments.values().filter(|held| is_it(held));
            held.map(|held| held.segment.bytes).sum()
        };
        let unseen: u64 = self.unseen.iter().map(|r| r.end - r.start).sum();
        let beyond = self.reserved.saturating_sub(bytes(|held| held.has_tensors));
        (bytes(|held| held.segment.at_gpu), beyond.max(unseen))
    }

    /// Bytes of PyTorch's live blocks whose allocation was not seen.
    pub(in super::super) fn allocated_before(&self) -> u64 {
        let tensors = self.blocks.values().filter(|b| b.owner == Owner::PYTORCH);
        let seen: u64 = tensors.map(|block| block.bytes).sum();
        self.allocated.saturating_sub(seen)
    }

    /// The segments, by address.
    pub(in super::super) fn runs(&self) -> Vec<Run> {
        let seen = self.segments.iter().map(|(&at, held)| Run::of(at, held));
        let unseen = self.unseen.iter().map(Run::from_before);
        let mut all: Vec<_> = seen.chain(unseen).collect();
        all.sort_unstable_by_key(|run| run.address);
        let mut runs: Vec<Run> = Vec::new();
        for next in all {
            if !runs.last_mut().is_some_and(|last| last.grow(&next)) {
                runs.push(next);
            }
        }
        runs
    }

    /// The blocks of a segment and the free memory between them, without a gap.
    pub(in super::super) fn tiles(&self, run: &Run) -> Vec<Tile<'_>> {
        let mut tiles = Vec::new();
        let mut at = run.address;
        for (&address, block) in self.blocks.range(run.address..run.end()) {
            tiles.extend(free(at, address));
            tiles.push(Tile {
                address,
                bytes: block.bytes,
                block: Some(block),
            });
            at = address + block.bytes;
        }
        tiles.extend(free(at, run.end()));
        tiles
    }
}

fn free(from: u64, until: u64) -> Option<Tile<'static>> {
    (until > from).then(|| Tile {
        address: from,
        bytes: until - from,
        block: None,
    })
}
