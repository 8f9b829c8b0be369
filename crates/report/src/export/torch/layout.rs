//! The memory of a process on one device, as PyTorch's snapshots show it: segments, blocks in them, and a
//! trace of how they came and went.
//!
//! The viewer plays the trace backwards from the state at its end, and stops with an error where a block
//! lies in no segment, or where a segment that comes was not there. So every change of the state here is an
//! event of the trace, and no block is ever without its segment: frees that can only have been lost
//! (because the address was handed out again, or its segment has gone) are made up for.

mod state;
mod tensors;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use hashbrown::HashMap;
use rangemap::RangeSet;

use super::names::{Owner, StackId};
use gpuprobe_cuda::Space;

pub(super) use state::{Run, Tile};

/// Addresses from here on are made up, for memory that has none at the device. Those of programs end before.
const MADE_UP: u64 = 1 << 50;
/// Up to here, numbers of JavaScript are exact.
const END: u64 = 1 << 53;
/// What was asked for is told before the thread is handed its next block; while it does not run, other
/// threads may be handed many.
const LOOK_AHEAD: usize = 1 << 15;

/// The stream of memory that PyTorch had before it was seen to get it: not known. It is one of its own, as
/// the viewer merges memory side by side that has the same.
const STREAM_UNKNOWN: i64 = -1;
/// The stream of other libraries' memory: none.
const NO_STREAM: i64 = -2;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Alloc,
    Free,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
}

/// An event of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) action: Action,
    /// `CLOCK_MONOTONIC` nanoseconds.
    pub(super) time_ns: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: i64,
    pub(super) stack: StackId,
    pub(super) owner: Owner,
}

/// How memory from CUDA comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// As a whole.
    Whole,
    /// It is mapped, in the range of reserved addresses that has this number.
    Mapped(u64),
}

/// Memory from CUDA that comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) bytes: u64,
    pub(super) piece: Piece,
    pub(super) stack: StackId,
    pub(super) owner: Owner,
    /// Which one of the process's it is, in the order in which they came.
    pub(super) number: u64,
    /// It is at the GPU for certain.
    pub(super) at_gpu: bool,
}

/// The same, since it came.
#[derive(Clone, Copy, Debug)]
struct Held {
    segment: Segment,
    /// The stream that PyTorch has it for, once that is known.
    stream: Option<i64>,
    has_tensors: bool,
    /// The number of the event with which it came.
    event: u64,
}

/// A block that is handed out, or all of another library's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) bytes: u64,
    /// Bytes that were asked for, if that is known; else all.
    pub(super) requested: u64,
    since_ns: u64,
    stream: i64,
    pub(super) stack: StackId,
    owner: Owner,
    /// The number of the event with which it came.
    event: u64,
}

/// What PyTorch hands out or takes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) time_ns: u64,
    pub(super) stack: StackId,
}

/// What is PyTorch's, as it is found out.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Numbers of the segments in which tensors were seen.
    pub(super) segments: Vec<u64>,
    /// Numbers of the ranges of reserved addresses in which they were: all that is mapped there is its.
    pub(super) ranges: Vec<u64>,
    /// Memory that it had before it was seen to get it, as far as tensors were seen in it.
    pub(super) from_before: RangeSet<u64>,
}

/// The memory of a process on one device.
#[derive(Debug, Default)]
pub(super) struct Layout {
    segments: BTreeMap<u64, Held>,
    blocks: BTreeMap<u64, Block>,
    /// Memory that PyTorch had before it was seen to get it, as far as tensors were seen in it.
    unseen: RangeSet<u64>,
    /// What of it has been there since the beginning of the trace, and nothing was seen in it yet.
    untouched: RangeSet<u64>,
    /// Addresses that were made up, by what has them.
    elsewhere: HashMap<(Space, u64), u64>,
    made_up_bytes: u64,
    events: VecDeque<Event>,
    /// How many came before the first of these.
    taken: u64,
    /// When the last of them was.
    last_ns: u64,
    found: Found,
    /// Bytes that PyTorch has handed out and that it holds for that, as it said last, less what it gave
    /// back since.
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    /// Tensors and memory that fit to nothing else.
    pub(super) left_out: u64,
}

/// From an address on; none if that is nothing, or ends beyond `end`.
fn range(address: u64, bytes: u64, end: u64) -> Option<Range<u64>> {
    let range = address..address.checked_add(bytes)?;
    (bytes > 0 && range.end <= end).then_some(range)
}

impl Layout {
    /// PyTorch has this memory from the beginning.
    pub(super) fn with(from_before: RangeSet<u64>) -> Self {
        Self {
            unseen: from_before.clone(),
            untouched: from_before,
            ..Self::default()
        }
    }

    /// The next event of the trace once all is known of it; all that are left at the end.
    pub(super) fn next_event(&mut self, is_end: bool) -> Option<Event> {
        let is_due = is_end || self.events.len() > LOOK_AHEAD;
        let event = is_due.then(|| self.events.pop_front()).flatten();
        self.taken += u64::from(event.is_some());
        event
    }

    /// The event of this number, if it was not taken yet.
    fn event_mut(&mut self, number: u64) -> Option<&mut Event> {
        let place = number.checked_sub(self.taken)?;
        self.events.get_mut(usize::try_from(place).ok()?)
    }

    /// Appends an event to the trace, in which none is earlier than the one before: records of several
    /// threads may be. Returns its number.
    fn push(&mut self, mut event: Event) -> u64 {
        self.last_ns = self.last_ns.max(event.time_ns);
        event.time_ns = self.last_ns;
        self.events.push_back(event);
        self.taken + self.events.len() as u64 - 1
    }

    /// Memory from CUDA comes at this address.
    pub(super) fn take(&mut self, address: u64, segment: Segment, time_ns: u64) {
        match range(address, segment.bytes, MADE_UP) {
            Some(range) => self.enter(&range, segment, time_ns),
            None => self.left_out += 1,
        }
    }

    /// Memory comes that has no address at the device; `key` names it, for [`Self::give_elsewhere`].
    pub(super) fn take_elsewhere(&mut self, key: (Space, u64), segment: Segment, time_ns: u64) {
        self.give_elsewhere(key, time_ns);
        let address = MADE_UP.saturating_add(self.made_up_bytes);
        let Some(range) = range(address, segment.bytes, END) else {
            self.left_out += 1;
            return;
        };
        self.made_up_bytes += segment.bytes;
        self.elsewhere.insert(key, address);
        self.enter(&range, segment, time_ns);
    }

    fn enter(&mut self, range: &Range<u64>, segment: Segment, time_ns: u64) {
        // What was there has gone: the address was handed out again.
        for stale in self.segments_in(range) {
            self.give(stale, time_ns);
        }
        self.forget_unseen(range, time_ns);
        let is_torch = segment.owner == Owner::PYTORCH;
        let mut event = Event {
            action: match segment.piece {
                Piece::Mapped(_) if is_torch => Action::SegmentMap,
                _ => Action::SegmentAlloc,
            },
            time_ns,
            address: range.start,
            bytes: segment.bytes,
            stream: if is_torch { 0 } else { NO_STREAM },
            stack: segment.stack,
            owner: segment.owner,
        };
        let held = Held {
            segment,
            stream: None,
            has_tensors: false,
            event: self.push(event.clone()),
        };
        self.segments.insert(range.start, held);
        if !is_torch {
            event.action = Action::Alloc;
            self.add_block(event);
        }
    }

    /// What came at this address goes, if it is here.
    pub(super) fn give(&mut self, address: u64, time_ns: u64) {
        let Some(held) = self.segments.remove(&address) else {
            return;
        };
        let segment = held.segment;
        self.free_all(&(address..address + segment.bytes), time_ns);
        if held.has_tensors {
            self.reserved = self.reserved.saturating_sub(segment.bytes);
        }
        let is_torch = segment.owner == Owner::PYTORCH;
        self.push(Event {
            action: match segment.piece {
                Piece::Mapped(_) if is_torch => Action::SegmentUnmap,
                _ => Action::SegmentFree,
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

    /// What came by this name goes, if it is here.
    pub(super) fn give_elsewhere(&mut self, key: (Space, u64), time_ns: u64) {
        if let Some(address) = self.elsewhere.remove(&key) {
            self.give(address, time_ns);
        }
    }

    /// Something was unmapped here. What was mapped before it was seen goes; mappings that begin here and
    /// were seen are returned.
    pub(super) fn unmap(&mut self, address: u64, bytes: u64, time_ns: u64) -> Vec<u64> {
        let Some(range) = range(address, bytes, MADE_UP) else {
            return Vec::new();
        };
        self.forget_unseen(&range, time_ns);
        let within = self.segments.range(range);
        let mapped = within.filter(|(_, held)| held.segment.piece != Piece::Whole);
        mapped.map(|(&at, _)| at).collect()
    }

    /// Memory from before was freed at this address. How much that is is not known: what tensors were seen
    /// in goes, up to the next that is in use.
    pub(super) fn free_unseen(&mut self, address: u64, time_ns: u64) {
        let Some(unseen) = self.unseen.get(&address).cloned() else {
            return;
        };
        let used = self.blocks_in(&(address..unseen.end)).first().copied();
        let end = used.unwrap_or(unseen.end);
        if end > address {
            self.forget_unseen(&(address..end), time_ns);
        }
    }

    fn forget_unseen(&mut self, range: &Range<u64>, time_ns: u64) {
        let within = |known: &Range<u64>| known.start.max(range.start)..known.end.min(range.end);
        let gone: Vec<_> = self.unseen.overlapping(range).map(within).collect();
        for gone in gone {
            self.free_all(&gone, time_ns);
            self.unseen.remove(gone.clone());
            self.untouched.remove(gone.clone());
            self.push_unseen(Action::SegmentUnmap, &gone, time_ns);
        }
    }

    fn push_unseen(&mut self, action: Action, range: &Range<u64>, time_ns: u64) {
        self.push(Event {
            action,
            time_ns,
            address: range.start,
            bytes: range.end - range.start,
            stream: STREAM_UNKNOWN,
            stack: StackId::NONE,
            owner: Owner::PYTORCH,
        });
    }

    /// A block comes, and the event that it is.
    fn add_block(&mut self, event: Event) {
        let address = event.address;
        let block = Block {
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

    /// Frees what is in use of this memory.
    fn free_all(&mut self, range: &Range<u64>, time_ns: u64) {
        for address in self.blocks_in(range) {
            if let Some(block) = self.blocks.remove(&address) {
                self.push_free(address, &block, time_ns, StackId::NONE);
            }
        }
    }

    /// A block has gone; without a call stack of that, the event has the one with which it came.
    fn push_free(&mut self, address: u64, block: &Block, time_ns: u64, stack: StackId) {
        self.push(Event {
            action: Action::Free,
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
