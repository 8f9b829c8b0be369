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

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use rangemap::RangeSet;

use gpuprobe_model::blocks::{FoundBlock, FoundSegment, LARGE_PIECE, SMALL_REQUEST, SMALL_SEGMENT};

use super::{Category, SnapshotBlock, SnapshotSegment, StackId, TraceEvent};

/// Address of the context, which has none. Addresses of programs are below.
const CONTEXT_AT: u64 = 1 << 50;
/// Limit of addresses: JavaScript represents integers below it exactly.
const END: u64 = 1 << 53;

/// Stream of PyTorch's memory from before tracing began: unknown. It has a number of its own, as
/// the viewer merges adjacent memory with the same stream.
const STREAM_UNKNOWN: i64 = -1;
/// Stream of other libraries' memory: none.
const NO_STREAM: i64 = -2;

/// What a piece of memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// A block of PyTorch's.
    Block,
    /// Memory from CUDA that is freed as a whole.
    #[default]
    Allocation,
    /// Memory from CUDA that is mapped in the reserved address range that begins here.
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
    /// When it was freed, and where.
    pub(super) until_ns: u64,
    pub(super) freed_by: StackId,
    /// Whether it is certain to be GPU memory.
    pub(super) at_gpu: bool,
    /// Whether tensors were seen in it.
    pub(super) has_tensors: bool,
}

impl Piece {
    pub(super) fn new(kind: Kind, address: u64, bytes: u64, since_ns: u64) -> Self {
        Self {
            kind,
            address,
            bytes,
            requested: bytes,
            since_ns,
            ..Self::default()
        }
    }

    /// PyTorch's memory from before tracing began.
    fn unseen(range: &Range<u64>, since_ns: u64) -> Self {
        let bytes = range.end - range.start;
        Self {
            stream: Some(STREAM_UNKNOWN),
            ..Self::new(Kind::Unseen, range.start, bytes, since_ns)
        }
    }

    fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes
    }
}

/// The memory of a process on one device.
#[derive(Debug, Default)]
pub(super) struct DeviceLayout {
    pieces: Vec<Piece>,
    /// The pieces that came or, if true, went, in order.
    trace: Vec<(usize, bool)>,
    /// Live segments and blocks by address.
    segments: BTreeMap<u64, usize>,
    blocks: BTreeMap<u64, usize>,
    /// PyTorch's memory from before tracing began, as far as tensors were seen in it.
    unseen: RangeSet<u64>,
    /// Where any memory was seen so far.
    touched: RangeSet<u64>,
    /// Begins of the reserved address ranges in which tensors were seen: all mappings there are PyTorch's.
    ranges: HashSet<u64>,
    /// Bytes that the process last used beyond traced memory.
    pub(super) context: u64,
    /// Number of tensors and segments dropped because they fit nothing known.
    pub(super) left_out: u64,
}

/// An address range; `None` if it is empty or not one of programs.
fn range(address: u64, bytes: u64) -> Option<Range<u64>> {
    let range = address..address.checked_add(bytes)?;
    (bytes > 0 && range.end <= CONTEXT_AT).then_some(range)
}

impl DeviceLayout {
    /// The pieces in `live` that overlap `range`.
    fn overlapping(&self, live: &BTreeMap<u64, usize>, range: &Range<u64>) -> Vec<usize> {
        let before = live.range(..range.start).next_back();
        let before = before.filter(|(_, number)| self.pieces[**number].range().end > range.start);
        let all = before.into_iter().chain(live.range(range.clone()));
        all.map(|(_, number)| *number).collect()
    }

    /// Adds a piece that comes now.
    fn come(&mut self, piece: Piece) -> usize {
        self.pieces.push(piece);
        self.trace.push((self.pieces.len() - 1, false));
        self.pieces.len() - 1
    }

    /// Removes a piece; without a call stack of the free, with that of the allocation.
    fn go(&mut self, number: usize, until_ns: u64, stack: StackId) {
        let piece = &mut self.pieces[number];
        piece.until_ns = until_ns;
        piece.freed_by = match stack {
            StackId::None => piece.stack,
            known => known,
        };
        self.trace.push((number, true));
    }

    /// Removes a piece that was there from the beginning.
    fn go_unseen(&mut self, piece: Piece) {
        self.touched.insert(piece.range());
        self.pieces.push(piece);
        self.go(self.pieces.len() - 1, piece.since_ns, piece.stack);
    }

    /// Adds a segment at its address.
    pub(super) fn add_segment(&mut self, segment: Piece) {
        let Some(range) = range(segment.address, segment.bytes) else {
            self.left_out += 1;
            return;
        };
        // Address reuse: the former segments there are gone.
        for stale in self.overlapping(&self.segments, &range) {
            self.remove_segment(self.pieces[stale].address, segment.since_ns);
        }
        self.remove_unseen(&range, segment.since_ns);
        self.touched.insert(range);
        let number = self.come(segment);
        self.segments.insert(segment.address, number);
    }

    /// Removes the segment at this address, if there is one.
    pub(super) fn remove_segment(&mut self, address: u64, time_ns: u64) {
        if let Some(number) = self.segments.remove(&address) {
            self.free_all(&self.pieces[number].range(), time_ns);
            self.go(number, time_ns, StackId::None);
        }
    }

    /// Unmaps a range, but for mappings that were made since.
    pub(super) fn unmap(
        &mut self,
        (address, bytes): (u64, u64),
        time_ns: u64,
        is_mapped: impl Fn(u64) -> bool,
    ) {
        let Some(range) = range(address, bytes) else {
            return;
        };
        self.remove_unseen(&range, time_ns);
        for number in self.overlapping(&self.segments, &range) {
            let segment = self.pieces[number];
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
            let used = self.overlapping(&self.blocks, &(address..unseen.end));
            let end = used
                .first()
                .map_or(unseen.end, |used| self.pieces[*used].address);
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
            self.go_unseen(Piece::unseen(&gone, time_ns));
            self.unseen.remove(gone);
        }
    }

    /// Notes a segment of PyTorch that was found, and may be from before the tracing.
    pub(super) fn found(&mut self, segment: &FoundSegment, time_ns: u64) {
        if let Some(range) = range(segment.address, segment.bytes) {
            for again in self.find_unseen(&range) {
                self.come(Piece::unseen(&again, time_ns));
                self.unseen.insert(again);
            }
        }
    }

    /// Adds a block that PyTorch has allocated.
    pub(super) fn allocate(&mut self, block: Piece) {
        let Some(range) = self.place_of(&block) else {
            self.left_out += 1;
            return;
        };
        // Blocks still there were freed, and the events lost.
        self.free_all(&range, block.since_ns);
        for again in self.find_unseen(&range) {
            self.come(Piece::unseen(&again, block.since_ns));
            self.unseen.insert(again);
        }
        self.touched.insert(range);
        let segment = self.segments.range(..=block.address).next_back();
        let number = self.come(Piece {
            stream: segment.and_then(|(_, number)| self.pieces[*number].stream),
            ..block
        });
        self.blocks.insert(block.address, number);
    }

    /// Sets the requested size and the stream of the block at this address, which was allocated
    /// recently.
    pub(super) fn request(&mut self, address: u64, bytes: u64, stream: i64) {
        let Some(&block) = self.blocks.get(&address) else {
            return;
        };
        let block = &mut self.pieces[block];
        block.requested = bytes.clamp(1, block.bytes);
        block.stream = Some(stream);
        if let Some((_, &segment)) = self.segments.range(..=address).next_back()
            && let segment = &mut self.pieces[segment]
            && segment.range().contains(&address)
        {
            segment.stream.get_or_insert(stream);
        }
    }

    /// Removes a block that PyTorch has freed. If its allocation was not seen, it was there from
    /// the beginning; this requires that its memory was, too, and nothing else in it.
    pub(super) fn free(&mut self, block: Piece) {
        if let Some(&known) = self.blocks.get(&block.address) {
            // A block newer than the free stays.
            if self.pieces[known].since_ns <= block.since_ns {
                self.free_block(known, block.since_ns, block.stack);
            }
            return;
        }
        let place = self.place_of(&block);
        let place = place.filter(|range| self.overlapping(&self.blocks, range).is_empty());
        if let Some(range) = &place {
            self.find_unseen(range);
        }
        match place.filter(|range| !self.touched.overlaps(range)) {
            Some(_) => self.go_unseen(block),
            None => self.left_out += 1,
        }
    }

    /// Frees the blocks in use in this range.
    fn free_all(&mut self, range: &Range<u64>, time_ns: u64) {
        for block in self.overlapping(&self.blocks, range) {
            self.free_block(block, time_ns, StackId::None);
        }
    }

    fn free_block(&mut self, number: usize, time_ns: u64, stack: StackId) {
        self.blocks.remove(&self.pieces[number].address);
        self.go(number, time_ns, stack);
    }

    /// The range of a block if a tensor can be there: within one allocation, within mappings of one reserved range, or
    /// where nothing is known.
    fn place_of(&self, block: &Piece) -> Option<Range<u64>> {
        let range = range(block.address, block.bytes)?;
        let mut mapped_in = None;
        let mut segments = self.overlapping(&self.segments, &range).into_iter();
        let fits = segments.all(|number| {
            let segment = &self.pieces[number];
            match segment.kind {
                Kind::Mapping(of) => *mapped_in.get_or_insert(of) == of,
                _ => segment.address <= range.start && range.end <= segment.range().end,
            }
        });
        fits.then_some(range)
    }

    /// Notes a tensor in this range. The parts that are in no known memory were there before tracing
    /// began; those where memory was seen earlier are returned.
    fn find_unseen(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut known: RangeSet<u64> = self.unseen.overlapping(range).cloned().collect();
        for number in self.overlapping(&self.segments, range) {
            let segment = &mut self.pieces[number];
            known.insert(segment.range());
            segment.has_tensors = true;
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
            _ => piece.has_tensors,
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
        let sum = |is_it: fn(&Piece) -> bool| -> u64 {
            let segments = self.segments.values().map(|number| &self.pieces[*number]);
            segments.filter(|one| is_it(one)).map(|one| one.bytes).sum()
        };
        let unseen = self.unseen.iter().map(|range| range.end - range.start);
        let with_tensors = sum(|segment| segment.has_tensors);
        let beyond = reserved.saturating_sub(with_tensors).max(unseen.sum());
        sum(|segment| segment.at_gpu).saturating_add(beyond)
    }

    /// Nothing is added any more, but the memory that the process, which began at this time, uses beyond traced memory.
    pub(super) fn finish(&mut self, began_ns: u64) {
        if (1..=END - CONTEXT_AT).contains(&self.context) {
            self.segments.insert(CONTEXT_AT, self.pieces.len());
            self.trace.insert(0, (self.pieces.len(), false));
            self.pieces.push(Piece {
                stack: StackId::Context,
                ..Piece::new(Kind::Allocation, CONTEXT_AT, self.context, began_ns)
            });
        }
    }

    /// The events. Records of several threads may be out of order; an event is never earlier than the one before.
    pub(super) fn trace(&self) -> impl Iterator<Item = TraceEvent> {
        let mut last_ns = 0;
        self.trace.iter().flat_map(move |&(number, is_free)| {
            let piece = self.pieces[number];
            let (time_ns, stack) = match is_free {
                true => (piece.until_ns, piece.freed_by),
                false => (piece.since_ns, piece.stack),
            };
            last_ns = time_ns.max(last_ns);
            // The viewer expects both actions of a free, one after the other.
            let (category, [come, go]): (_, [&[&'static str]; 2]) = match piece.kind {
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
            let event = TraceEvent {
                action: "",
                time_ns: last_ns,
                address: piece.address,
                bytes: piece.requested,
                stream: self.stream(&piece),
                stack,
                category,
            };
            let actions = if is_free { go } else { come }.iter();
            actions.map(move |action| TraceEvent { action, ..event })
        })
    }

    /// The segments at the end, by address: runs of mappings without a gap are one.
    pub(super) fn segments(&self, device: u16) -> Vec<SnapshotSegment> {
        let unseen = self.unseen.iter().map(|range| Piece::unseen(range, 0));
        let segments = self.segments.values().map(|number| self.pieces[*number]);
        let mut all: Vec<_> = segments.chain(unseen).collect();
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
        let range = first.address..first.address + bytes;
        let blocks = self.blocks.range(range.clone());
        let blocks = blocks.map(|(_, number)| {
            let piece = &self.pieces[*number];
            block(
                piece.address,
                piece.bytes,
                Some(piece.requested),
                piece.stack,
            )
        });
        let blocks = match is_torch {
            true => with_gaps(range, blocks),
            false => vec![block(first.address, bytes, Some(bytes), first.stack)],
        };
        SnapshotSegment {
            device,
            address: first.address,
            bytes,
            pool: (0, 0),
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
}

/// The blocks in a range, by address, and the free memory between them, without a gap.
fn with_gaps(range: Range<u64>, blocks: impl Iterator<Item = SnapshotBlock>) -> Vec<SnapshotBlock> {
    let (mut all, mut at) = (Vec::new(), range.start);
    let end = block(range.end, 0, None, StackId::None);
    for next in blocks.chain([end]) {
        if next.address > at {
            all.push(block(at, next.address - at, None, StackId::None));
        }
        at = next.address.saturating_add(next.bytes);
        all.push(next);
    }
    all.pop();
    all
}

fn block(address: u64, bytes: u64, requested: Option<u64>, stack: StackId) -> SnapshotBlock {
    SnapshotBlock {
        address,
        bytes,
        requested,
        is_pending: false,
        stack,
    }
}

/// A segment that was found, with the blocks in use in it, by address.
pub(super) fn segment_found(
    device: u16,
    segment: &FoundSegment,
    in_use: &[FoundBlock],
    mut stack_of: impl FnMut(&FoundBlock) -> StackId,
) -> SnapshotSegment {
    let end = segment.address.saturating_add(segment.bytes);
    let blocks = in_use.iter().map(|found| {
        let (address, bytes) = (found.address, found.bytes);
        SnapshotBlock {
            is_pending: found.is_pending,
            ..block(address, bytes, Some(found.asked_bytes()), stack_of(found))
        }
    });
    let is_small = match (segment.is_expandable, in_use) {
        (false, _) => segment.bytes <= SMALL_SEGMENT,
        (true, [first, ..]) => first.bytes <= SMALL_REQUEST,
        (true, []) => !segment.bytes.is_multiple_of(LARGE_PIECE),
    };
    SnapshotSegment {
        device,
        address: segment.address,
        bytes: segment.bytes,
        pool: segment.pool,
        is_expandable: segment.is_expandable,
        is_small,
        stream: segment.stream.cast_signed(),
        stack: StackId::None,
        blocks: with_gaps(segment.address..end, blocks),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
