//! The memory of a process on one device, in the form of PyTorch's snapshots: segments, blocks in
//! them, and a trace of events.
//!
//! The viewer plays the trace backwards from the final state, and stops with an error at a block
//! outside of any segment, or at an allocated segment that was not there. So every change of the
//! state here is an event of the trace, and no block is ever without its segment: for frees that
//! were evidently lost (the address was reused, or its segment is gone), events are added.

mod state;
mod tensors;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use hashbrown::HashMap;
use rangemap::RangeSet;

use super::names::{Owner, StackId};
use gpuprobe_cuda::AddressSpace;

pub(super) use state::{Run, Tile};

/// First synthetic address, for memory without a device address. Addresses of programs are below.
const FIRST_SYNTHETIC: u64 = 1 << 50;
/// Limit of addresses: JavaScript represents integers below it exactly.
const END: u64 = 1 << 53;
/// Events held back until requested sizes are known. A requested size is reported before the
/// thread's next block; while the thread does not run, other threads may allocate many blocks.
const LOOK_AHEAD: usize = 1 << 15;

/// Stream of PyTorch's memory from before tracing began: unknown. It has a number of its own, as
/// the viewer merges adjacent memory with the same stream.
const STREAM_UNKNOWN: i64 = -1;
/// Stream of other libraries' memory: none.
const NO_STREAM: i64 = -2;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceAction {
    Alloc,
    Free,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
}

/// An event of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceEvent {
    pub(super) action: TraceAction,
    /// Time of the event, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) time_ns: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: i64,
    pub(super) stack: StackId,
    pub(super) owner: Owner,
}

/// Unit in which memory from CUDA is allocated and freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentChange {
    /// An allocation, freed as a whole.
    Whole,
    /// A mapping in the reserved address range with this number.
    Mapped(u64),
}

/// A new segment of memory from CUDA.
#[derive(Clone, Copy, Debug)]
pub(super) struct SnapshotSegment {
    pub(super) bytes: u64,
    pub(super) piece: SegmentChange,
    pub(super) stack: StackId,
    pub(super) owner: Owner,
    /// Number of the segment within the process, in order of allocation.
    pub(super) number: u64,
    /// Whether it is certain to be GPU memory.
    pub(super) at_gpu: bool,
}

/// A segment of memory that is live.
#[derive(Clone, Copy, Debug)]
struct LiveBlock {
    segment: SnapshotSegment,
    /// The stream that PyTorch uses it for, once known.
    stream: Option<i64>,
    has_tensors: bool,
    /// Number of the event that allocated it.
    event: u64,
}

/// An allocated block, or all memory of another library.
#[derive(Clone, Copy, Debug)]
pub(super) struct SnapshotBlock {
    pub(super) bytes: u64,
    /// Bytes requested, if known; else the size of the block.
    pub(super) requested: u64,
    since_ns: u64,
    stream: i64,
    pub(super) stack: StackId,
    owner: Owner,
    /// Number of the event that allocated it.
    event: u64,
}

/// A block allocated or freed by PyTorch.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorChange {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) time_ns: u64,
    pub(super) stack: StackId,
}

/// The memory found to be PyTorch's.
#[derive(Debug, Default)]
pub(super) struct AllocatorState {
    /// Numbers of the segments in which tensors were seen.
    pub(super) segments: Vec<u64>,
    /// Numbers of the reserved address ranges in which tensors were seen: all mappings there are
    /// PyTorch's.
    pub(super) ranges: Vec<u64>,
    /// Memory from before tracing began, as far as tensors were seen in it.
    pub(super) from_before: RangeSet<u64>,
}

/// The memory of a process on one device.
#[derive(Debug, Default)]
pub(super) struct DeviceLayout {
    segments: BTreeMap<u64, LiveBlock>,
    blocks: BTreeMap<u64, SnapshotBlock>,
    /// PyTorch's memory from before tracing began, as far as tensors were seen in it.
    unseen: RangeSet<u64>,
    /// The part of it in which no tensor has been seen since the beginning of the trace.
    untouched: RangeSet<u64>,
    /// Synthetic addresses, by the memory that has them.
    synthetic: HashMap<(AddressSpace, u64), u64>,
    synthetic_bytes: u64,
    events: VecDeque<TraceEvent>,
    /// Number of events before the first of these.
    events_taken: u64,
    /// Time of the last of them.
    last_ns: u64,
    found: AllocatorState,
    /// Bytes that PyTorch has allocated and reserved, as last reported, less the segments freed
    /// since.
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    /// Number of tensors and segments dropped because they fit nothing known.
    pub(super) left_out: u64,
}

/// An address range; `None` if it is empty or ends beyond `end`.
fn range(address: u64, bytes: u64, end: u64) -> Option<Range<u64>> {
    let range = address..address.checked_add(bytes)?;
    (bytes > 0 && range.end <= end).then_some(range)
}

impl DeviceLayout {
    /// A layout with PyTorch's memory from before tracing began.
    pub(super) fn with(from_before: RangeSet<u64>) -> Self {
        Self {
            unseen: from_before.clone(),
            untouched: from_before,
            ..Self::default()
        }
    }

    /// Takes the next event of the trace once it is complete; at the end, all that are left.
    pub(super) fn next_event(&mut self, is_end: bool) -> Option<TraceEvent> {
        let is_due = is_end || self.events.len() > LOOK_AHEAD;
        let event = is_due.then(|| self.events.pop_front()).flatten();
        self.events_taken += u64::from(event.is_some());
        event
    }

    /// The event with this number, if it was not taken yet.
    fn event_mut(&mut self, number: u64) -> Option<&mut TraceEvent> {
        let place = number.checked_sub(self.events_taken)?;
        self.events.get_mut(usize::try_from(place).ok()?)
    }

    /// Appends an event to the trace and returns its number. Records of several threads may be out
    /// of order; an event is never earlier than the one before.
    fn push(&mut self, mut event: TraceEvent) -> u64 {
        self.last_ns = self.last_ns.max(event.time_ns);
        event.time_ns = self.last_ns;
        self.events.push_back(event);
        self.events_taken + self.events.len() as u64 - 1
    }

    /// Adds a segment at this address.
    pub(super) fn add_segment(&mut self, address: u64, segment: SnapshotSegment, time_ns: u64) {
        match range(address, segment.bytes, FIRST_SYNTHETIC) {
            Some(range) => self.enter(&range, segment, time_ns),
            None => self.left_out += 1,
        }
    }

    /// Adds a segment without a device address; `key` identifies it for [`Self::remove_synthetic`].
    pub(super) fn add_synthetic(
        &mut self,
        key: (AddressSpace, u64),
        segment: SnapshotSegment,
        time_ns: u64,
    ) {
        self.remove_synthetic(key, time_ns);
        let address = FIRST_SYNTHETIC.saturating_add(self.synthetic_bytes);
        let Some(range) = range(address, segment.bytes, END) else {
            self.left_out += 1;
            return;
        };
        self.synthetic_bytes += segment.bytes;
        self.synthetic.insert(key, address);
        self.enter(&range, segment, time_ns);
    }

    fn enter(&mut self, range: &Range<u64>, segment: SnapshotSegment, time_ns: u64) {
        // Address reuse: the former segments there are gone.
        for stale in self.segments_in(range) {
            self.remove_segment(stale, time_ns);
        }
        self.remove_unseen(range, time_ns);
        let is_torch = segment.owner == Owner::PYTORCH;
        let mut event = TraceEvent {
            action: match segment.piece {
                SegmentChange::Mapped(_) if is_torch => TraceAction::SegmentMap,
                _ => TraceAction::SegmentAlloc,
            },
            time_ns,
            address: range.start,
            bytes: segment.bytes,
            stream: if is_torch { 0 } else { NO_STREAM },
            stack: segment.stack,
            owner: segment.owner,
        };
        let held = LiveBlock {
            segment,
            stream: None,
            has_tensors: false,
            event: self.push(event.clone()),
        };
        self.segments.insert(range.start, held);
        if !is_torch {
            event.action = TraceAction::Alloc;
            self.add_block(event);
        }
    }

    /// Removes the segment at this address, if there is one.
    pub(super) fn remove_segment(&mut self, address: u64, time_ns: u64) {
        let Some(held) = self.segments.remove(&address) else {
            return;
        };
        let segment = held.segment;
        self.free_all(&(address..address + segment.bytes), time_ns);
        if held.has_tensors {
            self.reserved = self.reserved.saturating_sub(segment.bytes);
        }
        let is_torch = segment.owner == Owner::PYTORCH;
        self.push(TraceEvent {
            action: match segment.piece {
                SegmentChange::Mapped(_) if is_torch => TraceAction::SegmentUnmap,
                _ => TraceAction::SegmentFree,
            },
            time_ns,
            address,
            bytes: segment.bytes,
            stream: match is_torch {
                true => held.stream.unwrap_or(0),
                false => NO_STREAM,
            },
            stack: segment.stack,
            owner: segment.owner,
        });
    }

    /// Removes the segment with this key, if there is one.
    pub(super) fn remove_synthetic(&mut self, key: (AddressSpace, u64), time_ns: u64) {
        if let Some(address) = self.synthetic.remove(&key) {
            self.remove_segment(address, time_ns);
        }
    }

    /// Unmaps a range. Mappings whose creation was not seen are removed; the addresses of those
    /// that begin here and were seen are returned.
    pub(super) fn unmap(&mut self, address: u64, bytes: u64, time_ns: u64) -> Vec<u64> {
        let Some(range) = range(address, bytes, FIRST_SYNTHETIC) else {
            return Vec::new();
        };
        self.remove_unseen(&range, time_ns);
        let within = self.segments.range(range);
        let mapped = within.filter(|(_, held)| held.segment.piece != SegmentChange::Whole);
        mapped.map(|(&at, _)| at).collect()
    }

    /// Frees memory from before tracing began, of unknown size, at this address. The part in which
    /// tensors were seen is removed, up to the next part in use.
    pub(super) fn free_unseen(&mut self, address: u64, time_ns: u64) {
        let Some(unseen) = self.unseen.get(&address).cloned() else {
            return;
        };
        let used = self.blocks_in(&(address..unseen.end)).first().copied();
        let end = used.unwrap_or(unseen.end);
        if end > address {
            self.remove_unseen(&(address..end), time_ns);
        }
    }

    fn remove_unseen(&mut self, range: &Range<u64>, time_ns: u64) {
        let within = |known: &Range<u64>| known.start.max(range.start)..known.end.min(range.end);
        let gone: Vec<_> = self.unseen.overlapping(range).map(within).collect();
        for gone in gone {
            self.free_all(&gone, time_ns);
            self.unseen.remove(gone.clone());
            self.untouched.remove(gone.clone());
            self.push_unseen(TraceAction::SegmentUnmap, &gone, time_ns);
        }
    }

    fn push_unseen(&mut self, action: TraceAction, range: &Range<u64>, time_ns: u64) {
        self.push(TraceEvent {
            action,
            time_ns,
            address: range.start,
            bytes: range.end - range.start,
            stream: STREAM_UNKNOWN,
            stack: StackId::NONE,
            owner: Owner::PYTORCH,
        });
    }

    /// Adds a block, and its event.
    fn add_block(&mut self, event: TraceEvent) {
        let address = event.address;
        let block = SnapshotBlock {
            bytes: event.bytes,
            requested: event.bytes,
            since_ns: event.time_ns,
            stream: event.stream,
            stack: event.stack,
            owner: event.owner,
            event: self.push(event),
        };
        self.blocks.insert(address, block);
    }

    /// Frees the blocks in use in this range.
    fn free_all(&mut self, range: &Range<u64>, time_ns: u64) {
        for address in self.blocks_in(range) {
            if let Some(block) = self.blocks.remove(&address) {
                self.push_free(address, &block, time_ns, StackId::NONE);
            }
        }
    }

    /// Adds the event of a free; without a call stack of its own, with that of the allocation.
    fn push_free(&mut self, address: u64, block: &SnapshotBlock, time_ns: u64, stack: StackId) {
        self.push(TraceEvent {
            action: TraceAction::Free,
            time_ns,
            address,
            bytes: block.requested,
            stream: block.stream,
            stack: if stack == StackId::NONE {
                block.stack
            } else {
                stack
            },
            owner: block.owner,
        });
    }
}
