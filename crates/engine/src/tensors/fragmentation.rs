//! How what an allocator has handed out lies in the memory that it has from CUDA.
//!
//! PyTorch divides segments into blocks without gaps, and merges those that are free and lie side by side:
//! what no tensor takes between two of them is one free block. A segment goes back to CUDA when nothing is
//! handed out of it; of a range of addresses that is mapped piece by piece (expandable segments), each piece
//! does.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::Allocator;
use crate::allocation::key;
use crate::process::Process;
use crate::totals::Total;
use gpuprobe_cuda::{MemoryKind, Space};

/// PyTorch hands out at most so much of its small segments, which have [`SMALL_SEGMENT`] bytes: a larger
/// request takes a large one. `kSmallSize` and `kSmallBuffer` of `CUDACachingAllocator.cpp`.
const SMALL_REQUEST: u64 = 1 << 20;
const SMALL_SEGMENT: u64 = 2 << 20;
/// What has less than this share in use is held by little: one in so many.
const LITTLE: u64 = 20;

/// How full the memory is that an allocator has from CUDA, as far as that was seen to be allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// Its segments: an allocation each, or what is mapped without a gap.
    pub segments: Vec<Segment>,
    /// Bytes of the largest block in them that is free.
    pub largest_free_bytes: u64,
    /// The largest request that one of them has room for: small segments are for small requests only.
    pub largest_fit_bytes: u64,
    /// Bytes that CUDA would get back if all that is not in use were given back.
    pub unused_bytes: u64,
    /// What is held by little.
    pub pinned: Pinned,
    /// Tensors that are in no memory that was seen to be allocated.
    pub outside: Total,
    /// Small segments are for small requests.
    has_small: bool,
}

/// Memory from CUDA that cannot be given back because less than 5 % of it are in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Bytes of it.
    pub bytes: u64,
    /// Pieces of it that could be given back one by one.
    pub pieces: u64,
    /// What is in use of it.
    pub by: Total,
    /// The call sites of that, with bytes of what they hold back, most first.
    pub sites: Vec<(u32, u64)>,
    /// Where the last block is that is counted in [`Self::by`].
    last: Option<u64>,
}

impl Pinned {
    /// Puts together what is said of one site.
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

/// Memory from CUDA of which blocks are handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes that are handed out of it.
    pub used_bytes: u64,
    /// It is mapped piece by piece: where these begin.
    pub pieces: Vec<u64>,
}

impl Segment {
    /// An allocation, of which nothing is handed out.
    fn of(address: u64, bytes: u64) -> Self {
        Self {
            address,
            bytes,
            used_bytes: 0,
            pieces: Vec::new(),
        }
    }

    /// Whether it is mapped piece by piece.
    pub fn is_expandable(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Whether PyTorch hands out small blocks of it only.
    fn is_small(&self) -> bool {
        match self.pieces[..] {
            [] | [_] => self.bytes <= SMALL_SEGMENT,
            [first, second, ..] => second - first <= SMALL_SEGMENT,
        }
    }

    fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }

    /// What goes back to CUDA as one: addresses and bytes.
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

/// A block that is handed out.
#[derive(Clone, Copy, Debug)]
struct Used {
    address: u64,
    bytes: u64,
    site: u32,
}

impl Allocator {
    /// How full the memory is that it has from CUDA in `process`, whose it is. Looks at every block.
    pub fn fragmentation(&self, process: &Process) -> Fragmentation {
        let used = |block: &crate::Allocation| Used {
            address: block.address,
            bytes: block.size_bytes,
            site: block.site,
        };
        let mut blocks: Vec<_> = self.blocks.allocations().map(used).collect();
        blocks.sort_unstable_by_key(|block| block.address);
        let mut segments = self.segments(process, &blocks);
        let mut found = Fragmentation {
            has_small: self.is_pytorch(),
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

    /// Whether it is PyTorch's.
    pub fn is_pytorch(&self) -> bool {
        gpuprobe_cuda::function(self.row).is_some_and(|row| row.device.is_there())
    }

    /// What it has from CUDA, by address.
    fn segments(&self, process: &Process, blocks: &[Used]) -> Vec<Segment> {
        let mut segments: Vec<_> = self
            .segments
            .iter()
            .filter_map(|&address| process.live.get(key(Space::Device, address)))
            .filter(|allocation| allocation.kind() != MemoryKind::Async)
            .map(|allocation| Segment::of(allocation.address, allocation.size_bytes))
            .collect();
        for &range in &self.ranges {
            let mut last: Option<Segment> = None;
            for (address, bytes) in process.physical.mapped_in(range) {
                match &mut last {
                    Some(segment) if segment.end() == address => {
                        segment.bytes = segment.bytes.saturating_add(bytes);
                        segment.pieces.push(address);
                    }
                    _ => segments.extend(last.replace(Segment {
                        pieces: vec![address],
                        ..Segment::of(address, bytes)
                    })),
                }
            }
            segments.extend(last);
        }
        self.add_unnoticed(process, blocks, &mut segments);
        segments.sort_unstable_by_key(|segment| segment.address);
        segments
    }

    /// Adds memory whose first block was handed out before we came or was lost, but which was seen to be
    /// allocated.
    fn add_unnoticed(&self, process: &Process, blocks: &[Used], segments: &mut Vec<Segment>) {
        segments.sort_unstable_by_key(|segment| segment.address);
        let is_in = |segments: &[Segment], address: u64| {
            let after = segments.partition_point(|segment| segment.address <= address);
            after > 0 && address < segments[after - 1].end()
        };
        if blocks.iter().all(|block| is_in(segments, block.address)) {
            return;
        }
        let of_gpu =
            |a: &&crate::Allocation| a.space() == Space::Device && a.kind() != MemoryKind::Async;
        let mut others: Vec<_> = process.live.iter().filter(of_gpu).collect();
        others.sort_unstable_by_key(|allocation| allocation.address);
        let mut more: HashMap<u64, u64> = HashMap::new();
        for block in blocks {
            if is_in(segments, block.address) {
                continue;
            }
            let after = others.partition_point(|other| other.address <= block.address);
            let Some(other) = after.checked_sub(1).and_then(|at| others.get(at)) else {
                continue;
            };
            if block.address - other.address < other.size_bytes {
                more.insert(other.address, other.size_bytes);
            }
        }
        let more = more.into_iter();
        segments.extend(more.map(|(address, bytes)| Segment::of(address, bytes)));
    }
}

impl Fragmentation {
    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        let bytes = self.segments.iter().map(|segment| segment.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    fn leave_outside(&mut self, blocks: &[Used]) {
        for block in blocks {
            self.outside.add(block.bytes);
        }
    }

    /// Adds up a segment and the blocks in it, by address.
    fn look_at(&mut self, segment: &mut Segment, blocks: &[Used]) {
        let mut free_from = segment.address;
        for block in blocks {
            self.note_free(segment, block.address.saturating_sub(free_from));
            segment.used_bytes = segment.used_bytes.saturating_add(block.bytes);
            free_from = free_from.max(block.address.saturating_add(block.bytes));
        }
        self.note_free(segment, segment.end().saturating_sub(free_from));
        let mut rest = blocks;
        for (address, bytes) in segment.returnable() {
            let end = address.saturating_add(bytes);
            let gone = rest.partition_point(|b| b.address.saturating_add(b.bytes) <= address);
            rest = &rest[gone..];
            let here = rest.partition_point(|block| block.address < end);
            self.look_at_piece(address, bytes, &rest[..here]);
        }
    }

    /// Adds up what goes back to CUDA as one, and the blocks of which a part is in it.
    fn look_at_piece(&mut self, address: u64, bytes: u64, blocks: &[Used]) {
        let end = address.saturating_add(bytes);
        let used_of = |block: &Used| {
            let until = block.address.saturating_add(block.bytes).min(end);
            until.saturating_sub(block.address.max(address))
        };
        let used = blocks.iter().map(used_of).fold(0, u64::saturating_add);
        if used == 0 {
            self.unused_bytes = self.unused_bytes.saturating_add(bytes);
        } else if used.saturating_mul(LITTLE) < bytes {
            self.pinned.bytes = self.pinned.bytes.saturating_add(bytes);
            self.pinned.pieces += 1;
            self.pinned.by.bytes = self.pinned.by.bytes.saturating_add(used);
            // One that began in the piece before may be counted already.
            let is_new = |block: &&Used| self.pinned.last.is_none_or(|last| last < block.address);
            self.pinned.by.allocations += blocks.iter().filter(is_new).count() as u64;
            self.pinned.last = blocks.last().map(|block| block.address);
            // Several of a site hold it back once.
            let sites: BTreeSet<_> = blocks.iter().map(|block| block.site).collect();
            let sites = sites.into_iter().map(|site| (site, bytes));
            self.pinned.sites.extend(sites);
        }
    }

    fn note_free(&mut self, segment: &Segment, bytes: u64) {
        self.largest_free_bytes = self.largest_free_bytes.max(bytes);
        let fits = if self.has_small && segment.is_small() {
            bytes.min(SMALL_REQUEST)
        } else {
            bytes
        };
        self.largest_fit_bytes = self.largest_fit_bytes.max(fits);
    }
}
