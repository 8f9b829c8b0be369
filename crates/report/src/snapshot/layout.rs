//! The memory of a process on one device, in the form of PyTorch's snapshots: segments, blocks in
//! them, and a trace of events.
//!
//! The viewer plays the trace backwards from the final state, and stops with an error at a block
//! outside of any segment, or at an allocated segment that was not there. So every change of the
//! state here is an event of the trace, and no block is ever without its segment: for frees that
//! were evidently lost (the address was reused, or its segment is gone), events are added.
//!
//! A segment is PyTorch's if it has a tensor at any time. Other segments have one block, which is
//! added when the trace is complete.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use rangemap::RangeSet;

use super::{Category, SnapshotBlock, SnapshotSegment, StackId, TraceEvent};

/// Addresses of memory without a device address: the context and arrays. Addresses of programs are
/// below.
const CONTEXT_AT: u64 = 1 << 50;
const ARRAYS_AT: u64 = 1 << 51;
/// Limit of addresses: JavaScript represents integers below it exactly.
const END: u64 = 1 << 53;

/// Stream of PyTorch's memory from before tracing began: unknown. It has a number of its own, as
/// the viewer merges adjacent memory with the same stream.
const STREAM_UNKNOWN: i64 = -1;
/// Stream of other libraries' memory: none.
const NO_STREAM: i64 = -2;

/// Size of PyTorch's segments for small blocks; those for large blocks are larger. `kSmallBuffer`
/// of `CUDACachingAllocator.cpp`.
const SMALL_SEGMENT: u64 = 2 << 20;

/// What a piece of memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// A block of PyTorch's.
    Block,
    /// Memory from CUDA that is freed as a whole.
    #[default]
    Allocation,
    /// Memory from CUDA that is mapped in the reserved address range with this number.
    Mapping(u64),
    /// PyTorch's memory from before tracing began.
    Unseen,
}

/// A piece of memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// Of a block: bytes requested, if known; else its size.
    pub(super) requested: u64,
    /// The stream that PyTorch uses it for, once known.
    pub(super) stream: Option<i64>,
    pub(super) stack: StackId,
    pub(super) since_ns: u64,
    /// Whether it is certain to be GPU memory.
    pub(super) at_gpu: bool,
    /// Number of the event with which it came.
    pub(super) number: usize,
}

impl Piece {
    pub(super) fn new(kind: Kind, address: u64, bytes: u64, since_ns: u64) -> Self {
        Self {
            kind,
            address,
            bytes,
            since_ns,
            ..Self::default()
        }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes
    }
}

/// A piece came or went.
#[derive(Clone, Copy, Debug)]
struct Event {
    piece: Piece,
    is_free: bool,
    time_ns: u64,
    stack: StackId,
}

/// The memory of a process on one device.
#[derive(Debug, Default)]
pub(super) struct DeviceLayout {
    /// The events in order.
    trace: Vec<Event>,
    /// Live segments and blocks by address.
    segments: BTreeMap<u64, Piece>,
    blocks: BTreeMap<u64, Piece>,
    /// PyTorch's memory from before tracing began, as far as tensors were seen in it.
    unseen: RangeSet<u64>,
    /// Where any memory was seen so far.
    touched: RangeSet<u64>,
    /// Addresses of arrays, by handle.
    arrays: HashMap<u64, u64>,
    array_bytes: u64,
    /// Numbers of the segments, and of the reserved address ranges, in which tensors were seen: all
    /// mappings there are PyTorch's.
    with_tensors: HashSet<usize>,
    ranges: HashSet<u64>,
    /// Bytes that the process last used beyond traced memory.
    pub(super) context: u64,
    /// Number of tensors and segments dropped because they fit nothing known.
    pub(super) left_out: u64,
}

/// An address range; `None` if it is empty or ends beyond `end`.
fn range(address: u64, bytes: u64, end: u64) -> Option<Range<u64>> {
    let range = address..address.checked_add(bytes)?;
    (bytes > 0 && range.end <= end).then_some(range)
}

/// The pieces that overlap `range`.
fn overlapping(live: &BTreeMap<u64, Piece>, range: &Range<u64>) -> Vec<Piece> {
    let before = live.range(..range.start).next_back().into_iter();
    let before = before.filter(|(_, piece)| piece.range().end > range.start);
    let all = before.chain(live.range(range.clone()));
    all.map(|(_, piece)| *piece).collect()
}

/// More is known of a piece than when it came.
fn update(trace: &mut [Event], piece: Piece) {
    if let Some(event) = trace.get_mut(piece.number) {
        event.piece = piece;
    }
}

impl DeviceLayout {
    /// Adds the event of a piece that comes now; returns it with its number.
    fn come(&mut self, piece: Piece) -> Piece {
        let number = self.trace.len();
        let piece = Piece { number, ..piece };
        self.push(piece, false, piece.since_ns, piece.stack);
        piece
    }

    /// Adds an event. Records of several threads may be out of order; an event is never earlier than
    /// the one before.
    fn push(&mut self, piece: Piece, is_free: bool, time_ns: u64, stack: StackId) {
        let last_ns = self.trace.last().map_or(0, |last| last.time_ns);
        self.trace.push(Event {
            piece,
            is_free,
            time_ns: time_ns.max(last_ns),
            stack,
        });
    }

    /// Adds a segment at its address.
    pub(super) fn add_segment(&mut self, segment: Piece) {
        match range(segment.address, segment.bytes, CONTEXT_AT) {
            Some(_) => self.enter(segment),
            None => self.left_out += 1,
        }
    }

    /// Adds an array, which has a handle in place of an address.
    pub(super) fn add_array(&mut self, array: Piece) {
        self.remove_array(array.address, array.since_ns);
        let address = ARRAYS_AT.saturating_add(self.array_bytes);
        if range(address, array.bytes, END).is_none() {
            self.left_out += 1;
            return;
        }
        self.array_bytes += array.bytes;
        self.arrays.insert(array.address, address);
        self.enter(Piece { address, ..array });
    }

    fn enter(&mut self, segment: Piece) {
        let (range, time_ns) = (segment.range(), segment.since_ns);
        // Address reuse: the former segments there are gone.
        for stale in overlapping(&self.segments, &range) {
            self.remove_segment(stale.address, time_ns);
        }
        self.remove_unseen(&range, time_ns);
        self.touched.insert(range);
        let segment = self.come(segment);
        self.segments.insert(segment.address, segment);
    }

    /// Removes the segment at this address, if there is one.
    pub(super) fn remove_segment(&mut self, address: u64, time_ns: u64) {
        if let Some(gone) = self.segments.remove(&address) {
            self.free_all(&gone.range(), time_ns);
            self.push(gone, true, time_ns, gone.stack);
        }
    }

    pub(super) fn remove_array(&mut self, handle: u64, time_ns: u64) {
        if let Some(address) = self.arrays.remove(&handle) {
            self.remove_segment(address, time_ns);
        }
    }

    /// Unmaps a range, but for mappings that were made since.
    pub(super) fn unmap(
        &mut self,
        (address, bytes): (u64, u64),
        time_ns: u64,
        is_mapped: impl Fn(u64) -> bool,
    ) {
        let Some(range) = range(address, bytes, CONTEXT_AT) else {
            return;
        };
        self.remove_unseen(&range, time_ns);
        for segment in overlapping(&self.segments, &range) {
            let is_within = segment.address >= address && segment.kind != Kind::Allocation;
            if is_within && !is_mapped(segment.address) {
                self.remove_segment(segment.address, time_ns);
            }
        }
    }

    /// Frees memory from before tracing began, of unknown size, at this address. The part in which
    /// tensors were seen is removed, up to the next part in use.
    pub(super) fn free_unseen(&mut self, address: u64, time_ns: u64) {
        if let Some(unseen) = self.unseen.get(&address) {
            let used = overlapping(&self.blocks, &(address..unseen.end));
            let end = used.first().map_or(unseen.end, |block| block.address);
            if end > address {
                self.remove_unseen(&(address..end), time_ns);
            }
        }
    }

    fn remove_unseen(&mut self, range: &Range<u64>, time_ns: u64) {
        let within = |known: &Range<u64>| known.start.max(range.start)..known.end.min(range.end);
        let gone: Vec<_> = self.unseen.overlapping(range).map(within).collect();
        for gone in gone {
            self.free_all(&gone, time_ns);
            let piece = unseen(&gone, time_ns);
            self.push(piece, true, time_ns, piece.stack);
            self.touched.insert(gone.clone());
            self.unseen.remove(gone);
        }
    }

    /// Adds a block that PyTorch has allocated.
    pub(super) fn allocate(&mut self, block: Piece) {
        let place = range(block.address, block.bytes, CONTEXT_AT);
        let Some(range) = place.filter(|range| self.may_have_tensor(range)) else {
            self.left_out += 1;
            return;
        };
        // Blocks still there were freed, and the events lost.
        self.free_all(&range, block.since_ns);
        for again in self.find_unseen(&range) {
            self.come(unseen(&again, block.since_ns));
            self.unseen.insert(again);
        }
        self.touched.insert(range);
        let segment = self.segments.range(..=block.address).next_back();
        let block = self.come(Piece {
            requested: block.bytes,
            stream: segment.and_then(|(_, segment)| segment.stream),
            ..block
        });
        self.blocks.insert(block.address, block);
    }

    /// Sets the requested size and the stream of the block at this address, which was allocated
    /// recently.
    pub(super) fn request(&mut self, address: u64, bytes: u64, stream: i64) {
        let Some(block) = self.blocks.get_mut(&address) else {
            return;
        };
        block.requested = bytes.clamp(1, block.bytes);
        block.stream = Some(stream);
        update(&mut self.trace, *block);
        let segment = self.segments.range_mut(..=address).next_back();
        if let Some((_, segment)) = segment
            && segment.range().contains(&address)
            && segment.stream.is_none()
        {
            segment.stream = Some(stream);
            update(&mut self.trace, *segment);
        }
    }

    /// Removes a block that PyTorch has freed. If its allocation was not seen, it was there from
    /// the beginning; this requires that its memory was, too, and nothing else in it.
    pub(super) fn free(&mut self, block: Piece) {
        if let Some(known) = self.blocks.get(&block.address).copied() {
            // A block newer than the free stays.
            if known.since_ns <= block.since_ns {
                self.free_block(known, block.since_ns, block.stack);
            }
            return;
        }
        let place = range(block.address, block.bytes, CONTEXT_AT);
        let place = place.filter(|range| self.may_have_tensor(range));
        let place = place.filter(|range| overlapping(&self.blocks, range).is_empty());
        if let Some(range) = &place {
            self.find_unseen(range);
        }
        let Some(range) = place.filter(|range| !self.touched.overlaps(range)) else {
            self.left_out += 1;
            return;
        };
        self.touched.insert(range);
        let requested = block.bytes;
        let piece = Piece { requested, ..block };
        self.push(piece, true, block.since_ns, block.stack);
    }

    /// Frees the blocks in use in this range.
    fn free_all(&mut self, range: &Range<u64>, time_ns: u64) {
        for block in overlapping(&self.blocks, range) {
            self.free_block(block, time_ns, StackId::None);
        }
    }

    /// Frees a block; without a call stack of its own, with that of the allocation.
    fn free_block(&mut self, block: Piece, time_ns: u64, stack: StackId) {
        self.blocks.remove(&block.address);
        let stack = match stack {
            StackId::None => block.stack,
            known => known,
        };
        self.push(block, true, time_ns, stack);
    }

    /// Whether a tensor can be here: within one allocation, within mappings of one reserved range,
    /// or where nothing is known.
    fn may_have_tensor(&self, range: &Range<u64>) -> bool {
        let mut mapped_in = None;
        let mut segments = overlapping(&self.segments, range).into_iter();
        segments.all(|segment| match segment.kind {
            Kind::Mapping(of) => *mapped_in.get_or_insert(of) == of,
            _ => segment.address <= range.start && range.end <= segment.range().end,
        })
    }

    /// Notes a tensor in this range. The parts that are in no known memory were there before tracing
    /// began; those where memory was seen earlier are returned.
    fn find_unseen(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut known: RangeSet<u64> = self.unseen.overlapping(range).cloned().collect();
        for segment in overlapping(&self.segments, range) {
            known.insert(segment.range());
            self.with_tensors.insert(segment.number);
            if let Kind::Mapping(of) = segment.kind {
                self.ranges.insert(of);
            }
        }
        let gaps: RangeSet<u64> = known.gaps(range).collect();
        for gap in gaps.iter() {
            self.unseen.extend(self.touched.gaps(gap));
        }
        gaps.intersection(&self.touched).collect()
    }

    fn is_torch(&self, piece: &Piece) -> bool {
        match piece.kind {
            Kind::Block | Kind::Unseen => true,
            Kind::Mapping(range) if self.ranges.contains(&range) => true,
            _ => self.with_tensors.contains(&piece.number),
        }
    }

    fn stream(&self, piece: &Piece) -> i64 {
        match self.is_torch(piece) {
            true => piece.stream.unwrap_or(0),
            false => NO_STREAM,
        }
    }

    /// Bytes of GPU memory known here, if PyTorch has reserved this much of it.
    pub(super) fn at_gpu(&self, reserved: u64) -> u64 {
        let sum = |is_it: &dyn Fn(&&Piece) -> bool| -> u64 {
            let segments = self.segments.values().filter(is_it);
            segments.map(|segment| segment.bytes).sum()
        };
        let unseen = self
            .unseen
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        let with_tensors = sum(&|segment| self.with_tensors.contains(&segment.number));
        let beyond = reserved.saturating_sub(with_tensors).max(unseen);
        sum(&|segment| segment.at_gpu).saturating_add(beyond)
    }

    /// Nothing is added any more, but the memory that the process uses beyond traced memory.
    pub(super) fn finish(&mut self) {
        if range(CONTEXT_AT, self.context, ARRAYS_AT).is_some() {
            let context = Piece {
                stack: StackId::Context,
                number: usize::MAX,
                ..Piece::new(Kind::Allocation, CONTEXT_AT, self.context, 0)
            };
            self.segments.insert(CONTEXT_AT, context);
        }
    }

    /// The events, in order; the process began at this time.
    pub(super) fn trace(&self, began_ns: u64) -> impl Iterator<Item = TraceEvent> {
        let context = self.segments.get(&CONTEXT_AT).map(|context| Event {
            piece: *context,
            is_free: false,
            time_ns: began_ns,
            stack: context.stack,
        });
        context
            .into_iter()
            .chain(self.trace.iter().copied())
            .flat_map(move |event| {
                let piece = event.piece;
                // The viewer expects both actions of a free, one after the other.
                let (category, actions): (_, [&[&'static str]; 2]) = match piece.kind {
                    Kind::Block => (
                        Category::Tensor,
                        [&["alloc"], &["free_requested", "free_completed"]],
                    ),
                    _ if !self.is_torch(&piece) => (
                        Category::Other,
                        [
                            &["segment_alloc", "alloc"],
                            &["free_requested", "free_completed", "segment_free"],
                        ],
                    ),
                    Kind::Allocation => (Category::Torch, [&["segment_alloc"], &["segment_free"]]),
                    _ => (Category::Torch, [&["segment_map"], &["segment_unmap"]]),
                };
                let actions = actions[usize::from(event.is_free)].iter();
                actions.map(move |action| TraceEvent {
                    action,
                    time_ns: event.time_ns,
                    address: piece.address,
                    bytes: match piece.kind {
                        Kind::Block => piece.requested,
                        _ => piece.bytes,
                    },
                    stream: self.stream(&piece),
                    stack: event.stack,
                    category,
                })
            })
    }

    /// The segments at the end, by address: runs of mappings without a gap are one.
    pub(super) fn segments(&self, device: u16) -> Vec<SnapshotSegment> {
        let unseen = self.unseen.iter().map(|range| unseen(range, 0));
        let mut all: Vec<_> = self.segments.values().copied().chain(unseen).collect();
        all.sort_unstable_by_key(|piece| piece.address);
        let is_mapping = |one: &Piece| one.kind != Kind::Allocation && self.is_torch(one);
        let runs = all.chunk_by(|one, next| {
            let is_same = match (one.kind, next.kind) {
                (Kind::Mapping(one), Kind::Mapping(next)) => one == next,
                _ => true,
            };
            one.range().end == next.address && is_mapping(one) && is_mapping(next) && is_same
        });
        runs.map(|run| self.segment(device, run)).collect()
    }

    fn segment(&self, device: u16, run: &[Piece]) -> SnapshotSegment {
        let has = |is_it: fn(&Piece) -> bool| run.iter().any(is_it);
        let first = &run[0];
        let is_torch = self.is_torch(first);
        let bytes = run.iter().map(|piece| piece.bytes).sum();
        let blocks = match is_torch {
            true => self.blocks_in(first.address..first.address + bytes),
            false => vec![block(first.address, bytes, Some(bytes), first.stack)],
        };
        let active = || blocks.iter().filter(|block| block.requested.is_some());
        SnapshotSegment {
            device,
            address: first.address,
            bytes,
            active_bytes: active().map(|block| block.bytes).sum(),
            requested_bytes: active().filter_map(|block| block.requested).sum(),
            is_expandable: is_torch && has(|piece| matches!(piece.kind, Kind::Mapping(_))),
            is_small: first.bytes <= SMALL_SEGMENT,
            stream: match has(|piece| piece.kind == Kind::Unseen) {
                true => STREAM_UNKNOWN,
                false => self.stream(first),
            },
            stack: first.stack,
            blocks,
        }
    }

    /// The blocks in a range and the free memory between them, without a gap.
    fn blocks_in(&self, range: Range<u64>) -> Vec<SnapshotBlock> {
        let (mut blocks, mut at) = (Vec::new(), range.start);
        let pieces = self.blocks.range(range.clone());
        for piece in pieces.map(|(_, piece)| Some(piece)).chain([None]) {
            let next = piece.map_or(range.end, |piece| piece.address);
            if next > at {
                blocks.push(block(at, next - at, None, StackId::None));
            }
            if let Some(piece) = piece {
                blocks.push(block(next, piece.bytes, Some(piece.requested), piece.stack));
                at = piece.range().end;
            }
        }
        blocks
    }
}

fn unseen(range: &Range<u64>, since_ns: u64) -> Piece {
    let bytes = range.end - range.start;
    Piece {
        stream: Some(STREAM_UNKNOWN),
        ..Piece::new(Kind::Unseen, range.start, bytes, since_ns)
    }
}

fn block(address: u64, bytes: u64, requested: Option<u64>, stack: StackId) -> SnapshotBlock {
    SnapshotBlock {
        address,
        bytes,
        requested,
        stack,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
