//! Fragmentation: the blocks of an allocator within its segments.
//!
//! PyTorch divides segments into adjacent blocks, and merges neighbouring free ones: the room
//! between two tensors is one free block. A segment is returned to CUDA when no block of it is
//! allocated; of an expandable segment, which is mapped piece by piece, each piece is.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::Allocator;
use crate::allocation::key;
use crate::process::Process;
use crate::totals::Total;
use gpuprobe_cuda::{AddressSpace, Framework, MemoryKind};
use gpuprobe_model::blocks::{FoundSegment, LARGE_PIECE, SMALL_REQUEST, SMALL_SEGMENT};

/// Pieces of a segment that are told apart.
const MAX_PIECES: usize = 1 << 20;
/// A piece is pinned if less than one part in this many is in use.
const LITTLE: u64 = 20;

/// Fragmentation of an allocator's memory, as far as its allocation was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// Its segments: one allocation each, or a run of mapped pieces without a gap.
    pub segments: Vec<TensorSegment>,
    /// Bytes of the largest free block in them.
    pub largest_free_bytes: u64,
    /// Largest request in bytes that fits into one of them: small segments only serve small
    /// requests.
    pub largest_fit_bytes: u64,
    /// Bytes that `torch.cuda.empty_cache()` would return to CUDA.
    pub unused_bytes: u64,
    /// Memory that cannot be returned although little of it is in use.
    pub pinned: Pinned,
    /// Blocks that are free once a stream has passed.
    pub pending: Total,
    /// Bytes of segments of private pools, and of free blocks in them: `empty_cache()` returns none of these.
    pub private_bytes: u64,
    /// See [`Self::private_bytes`].
    pub private_free_bytes: u64,
    /// Tensors outside of all memory that was seen to be allocated.
    pub outside: Total,
    /// Whether small segments only serve small requests.
    has_small: bool,
}

/// Memory from CUDA that cannot be returned although less than 5 % of it is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Bytes of these pieces.
    pub bytes: u64,
    /// Tensors in these pieces.
    pub by: Total,
    /// The call sites of these tensors, with the bytes that they pin, largest first.
    pub sites: Vec<(u32, u64)>,
    /// Address of the last block counted in [`Self::by`].
    last: Option<u64>,
}

impl Pinned {
    /// Merges the entries of each site.
    fn add_up_sites(&mut self) {
        self.sites.sort_unstable();
        self.sites.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 = kept.1.saturating_add(next.1);
            }
            is_same
        });
        self.sites
            .sort_by_key(|&(site, bytes)| (Reverse(bytes), site));
    }
}

/// A block that is in use: by the program, with its call site, or by a stream.
#[derive(Clone, Copy)]
struct BlockInUse {
    address: u64,
    size_bytes: u64,
    site: Option<u32>,
}

/// Memory from CUDA with blocks of the allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSegment {
    /// Address of the first byte.
    pub address: u64,
    /// Size of the memory, bytes.
    pub bytes: u64,
    /// Bytes of its allocated blocks.
    pub used_bytes: u64,
    /// Addresses of its pieces, if it is mapped piece by piece.
    pub pieces: Vec<u64>,
    /// Its private pool is not emptied.
    is_private: bool,
    /// It is mapped piece by piece, and the pieces were not seen.
    is_expandable: bool,
}

impl TensorSegment {
    /// An allocation without blocks.
    fn of(address: u64, bytes: u64) -> Self {
        Self {
            address,
            bytes,
            used_bytes: 0,
            pieces: Vec::new(),
            is_private: false,
            is_expandable: false,
        }
    }

    /// Whether PyTorch serves only small requests from it.
    fn is_small(&self) -> bool {
        match self.pieces[..] {
            [] | [_] => self.bytes <= SMALL_SEGMENT,
            [first, second, ..] => second - first <= SMALL_SEGMENT,
        }
    }

    /// It has the pieces that PyTorch maps, which are smaller for small requests: those of its first block are such or
    /// others.
    fn assume_pieces(&mut self, first: Option<&BlockInUse>) {
        let is_small = first.is_some_and(|block| block.size_bytes <= SMALL_REQUEST);
        let piece = if is_small { SMALL_SEGMENT } else { LARGE_PIECE };
        let pieces = usize::try_from(self.bytes / piece).unwrap_or(usize::MAX);
        let starts = (self.address..self.end()).step_by(piece as usize);
        self.pieces = starts.take(pieces.min(MAX_PIECES)).collect();
    }

    fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }

    /// Pieces that are returned to CUDA as one: addresses and bytes.
    fn returnable(&self) -> impl Iterator<Item = (u64, u64)> {
        let starts: &[u64] = match &self.pieces[..] {
            [] => std::slice::from_ref(&self.address),
            pieces => pieces,
        };
        let ends = starts.iter().skip(1).copied().chain([self.end()]);
        starts
            .iter()
            .zip(ends)
            .map(|(&start, end)| (start, end - start))
    }
}

impl Allocator {
    /// Fragmentation of the allocator's memory in `process`, its owner. Scans every block.
    pub fn fragmentation(&self, process: &Process) -> Fragmentation {
        let live = self.blocks.allocations().map(|block| BlockInUse {
            address: block.address,
            size_bytes: block.size_bytes,
            site: Some(block.site),
        });
        let pending = self.pending_frees();
        let pending = pending.map(|(address, size_bytes)| BlockInUse {
            address,
            size_bytes,
            site: None,
        });
        let mut blocks: Vec<_> = live.chain(pending).collect();
        blocks.sort_unstable_by_key(|block| block.address);
        let mut segments = self.segments(process);
        let mut found = Fragmentation {
            has_small: self.framework() == Some(Framework::PyTorch),
            ..Fragmentation::default()
        };
        let mut rest = &blocks[..];
        for segment in &mut segments {
            let before = rest.partition_point(|block| block.address < segment.address);
            found.leave_outside(&rest[..before]);
            let within = rest.partition_point(|block| block.address < segment.end());
            found.look_at(segment, &rest[before..within]);
            rest = &rest[within..];
        }
        found.leave_outside(rest);
        found.segments = segments;
        found.pinned.add_up_sites();
        found
    }

    /// The framework that it belongs to.
    pub fn framework(&self) -> Option<Framework> {
        gpuprobe_cuda::function(self.row)?.framework
    }

    /// Bytes that it has from CUDA by its own account, beyond the segments that were seen to be allocated. Only PyTorch
    /// reports a sum; of others, all regions are known once they are found.
    pub fn unseen_bytes(&self, process: &Process) -> u64 {
        if self.framework() != Some(Framework::PyTorch) && self.found.segments.is_empty() {
            return 0;
        }
        let seen = self.seen_segments(process).into_iter();
        let seen = seen.fold(0, |sum: u64, segment| sum.saturating_add(segment.bytes));
        self.reserved_bytes.saturating_sub(seen)
    }

    /// Segments of the allocator, by address.
    fn segments(&self, process: &Process) -> Vec<TensorSegment> {
        let mut segments = self.seen_segments(process);
        let seen: BTreeSet<u64> = segments.iter().map(|segment| segment.address).collect();
        let is_seen = |found: &&FoundSegment| {
            seen.range(found.address..found.address.saturating_add(found.bytes))
                .next()
                .is_some()
        };
        let found = self.found.segments.iter().filter(|found| !is_seen(found));
        segments.extend(found.map(|found| TensorSegment {
            is_expandable: found.is_expandable,
            ..TensorSegment::of(found.address, found.bytes)
        }));
        for segment in &mut segments {
            let found = self.found_at(segment.address);
            segment.is_private = found.is_some_and(|found| found.pool != (0, 0));
        }
        segments.sort_unstable_by_key(|segment| segment.address);
        segments
    }

    /// Segments that were seen to be allocated.
    fn seen_segments(&self, process: &Process) -> Vec<TensorSegment> {
        let mut segments: Vec<_> = self
            .segments
            .iter()
            .filter_map(|&address| process.live.get(key(AddressSpace::Device, address)))
            .filter(|allocation| allocation.kind() != MemoryKind::Async)
            .map(|allocation| TensorSegment::of(allocation.address, allocation.size_bytes))
            .collect();
        for &range in &self.ranges {
            let mut last: Option<TensorSegment> = None;
            for (address, bytes) in process.physical.mapped_in(range) {
                match &mut last {
                    Some(segment) if segment.end() == address => {
                        segment.bytes = segment.bytes.saturating_add(bytes);
                        segment.pieces.push(address);
                    }
                    _ => segments.extend(last.replace(TensorSegment {
                        pieces: vec![address],
                        ..TensorSegment::of(address, bytes)
                    })),
                }
            }
            segments.extend(last);
        }
        segments
    }
}

impl Fragmentation {
    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        let bytes = self.segments.iter().map(|segment| segment.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    fn leave_outside(&mut self, blocks: &[BlockInUse]) {
        for block in blocks.iter().filter(|block| block.site.is_some()) {
            self.outside.add(block.size_bytes);
        }
    }

    /// Adds a segment and the blocks in it, by address.
    fn look_at(&mut self, segment: &mut TensorSegment, blocks: &[BlockInUse]) {
        if segment.is_expandable {
            segment.assume_pieces(blocks.first());
        }
        let mut free_from = segment.address;
        let mut in_use = 0;
        for block in blocks {
            self.note_free(segment, block.address.saturating_sub(free_from));
            in_use = block.size_bytes.saturating_add(in_use);
            match block.site {
                Some(_) => segment.used_bytes = segment.used_bytes.saturating_add(block.size_bytes),
                None => self.pending.add(block.size_bytes),
            }
            free_from = free_from.max(block.address.saturating_add(block.size_bytes));
        }
        self.note_free(segment, segment.end().saturating_sub(free_from));
        if segment.is_private {
            self.private_bytes = self.private_bytes.saturating_add(segment.bytes);
            let free = segment.bytes.saturating_sub(in_use);
            self.private_free_bytes = self.private_free_bytes.saturating_add(free);
            return;
        }
        let mut rest = blocks;
        for (address, bytes) in segment.returnable() {
            let end = address.saturating_add(bytes);
            let gone = rest.partition_point(|b| b.address.saturating_add(b.size_bytes) <= address);
            rest = &rest[gone..];
            let here = rest.partition_point(|block| block.address < end);
            self.look_at_piece(address, bytes, &rest[..here]);
        }
    }

    /// Adds a piece that is returned to CUDA as one, and the blocks that overlap it.
    fn look_at_piece(&mut self, address: u64, bytes: u64, blocks: &[BlockInUse]) {
        let end = address.saturating_add(bytes);
        let used_of = |block: &BlockInUse| {
            let until = block.address.saturating_add(block.size_bytes).min(end);
            until.saturating_sub(block.address.max(address))
        };
        let used = blocks.iter().map(used_of).fold(0, u64::saturating_add);
        if used == 0 {
            self.unused_bytes = self.unused_bytes.saturating_add(bytes);
        } else if used.saturating_mul(LITTLE) < bytes && blocks.iter().any(|b| b.site.is_some()) {
            self.pinned.bytes = self.pinned.bytes.saturating_add(bytes);
            self.pinned.by.bytes = self.pinned.by.bytes.saturating_add(used);
            // A block that begins in the piece before may be counted already.
            let is_new = |block: &&BlockInUse| {
                block.site.is_some() && self.pinned.last.is_none_or(|last| last < block.address)
            };
            self.pinned.by.allocations += blocks.iter().filter(is_new).count() as u64;
            self.pinned.last = blocks.last().map(|block| block.address);
            // Several blocks of a site pin the piece once.
            let sites: BTreeSet<_> = blocks.iter().filter_map(|block| block.site).collect();
            let sites = sites.into_iter().map(|site| (site, bytes));
            self.pinned.sites.extend(sites);
        }
    }

    fn note_free(&mut self, segment: &TensorSegment, bytes: u64) {
        self.largest_free_bytes = self.largest_free_bytes.max(bytes);
        let fits = if self.has_small && segment.is_small() {
            bytes.min(SMALL_REQUEST)
        } else {
            bytes
        };
        self.largest_fit_bytes = self.largest_fit_bytes.max(fits);
    }
}
