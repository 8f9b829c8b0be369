//! The allocator's own state, from the reply to `tsnapshot`, and the expected figures.

use serde_json::{Value, json};

use crate::harness::talk::Talk;

const MIB: u64 = 1 << 20;

/// A block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Requested bytes; 0 if it is free.
    pub(crate) requested: u64,
    pub(crate) is_live: bool,
    /// It is freed once a stream has passed.
    pub(crate) is_pending: bool,
}

/// Memory from CUDA, divided into blocks.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) stream: u64,
    pub(crate) is_small: bool,
    pub(crate) is_expandable: bool,
    pub(crate) blocks: Vec<Block>,
}

/// A device with memory requests.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) number: u64,
    pub(crate) allocated: u64,
    pub(crate) reserved: u64,
    pub(crate) requested: u64,
    pub(crate) mallocs: u64,
    pub(crate) frees: u64,
    pub(crate) segments: Vec<Segment>,
}

/// All devices that were used.
pub(crate) fn snapshot(talk: &mut Talk) -> Vec<Device> {
    let mut devices = Vec::new();
    for group in talk.say("tsnapshot").split_terminator(';') {
        let (kind, numbers) = group.split_once(' ').unwrap();
        let numbers: Vec<u64> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
        if let ("device", &[number, allocated, reserved, requested, mallocs, frees]) =
            (kind, &numbers[..])
        {
            devices.push(Device {
                number,
                allocated,
                reserved,
                requested,
                mallocs,
                frees,
                segments: Vec::new(),
            });
            continue;
        }
        let device: &mut Device = devices.last_mut().unwrap();
        match (kind, &numbers[..]) {
            ("piece", &[address, bytes, stream, small, expandable]) => {
                device.add_piece(address, bytes, stream, [small, expandable].map(|n| n == 1));
            }
            ("block" | "pending", &[address, bytes, requested]) => {
                device.add_block(address, bytes, requested, kind == "pending");
            }
            _ => panic!("'{group}' in a snapshot"),
        }
    }
    for device in &mut devices {
        for segment in &mut device.segments {
            segment.add_gap(segment.address + segment.bytes);
        }
        let live: u64 = device.live().map(|block| block.bytes).sum();
        assert_eq!(live, device.allocated, "blocks of {device:?}");
    }
    devices
}

impl Segment {
    /// Adds the free space between the last block and `end`.
    fn add_gap(&mut self, end: u64) {
        let start = self
            .blocks
            .last()
            .map_or(self.address, |b| b.address + b.bytes);
        if start < end {
            self.blocks.push(Block {
                address: start,
                bytes: end - start,
                requested: 0,
                is_live: false,
                is_pending: false,
            });
        }
    }

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
        let free = self.blocks.iter();
        let free = free.filter(|block| !block.is_live && !block.is_pending);
        free.map(|block| block.bytes)
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.is_live)
    }
}

impl Device {
    /// Contiguous pieces of an address range are one segment. They come in order.
    fn add_piece(&mut self, address: u64, bytes: u64, stream: u64, kind: [bool; 2]) {
        let [is_small, is_expandable] = kind;
        let last = self.segments.last_mut();
        match last.filter(|s| s.is_expandable && s.address + s.bytes == address) {
            Some(segment) => segment.bytes += bytes,
            None => self.segments.push(Segment {
                address,
                bytes,
                stream,
                is_small,
                is_expandable,
                blocks: Vec::new(),
            }),
        }
    }

    /// Blocks of a segment come in order, after its pieces.
    fn add_block(&mut self, address: u64, bytes: u64, requested: u64, is_pending: bool) {
        let mut segments = self.segments.iter_mut();
        let segment = segments
            .find(|s| (s.address..s.address + s.bytes).contains(&address))
            .unwrap();
        segment.add_gap(address);
        segment.blocks.push(Block {
            address,
            bytes,
            requested,
            is_live: !is_pending,
            is_pending,
        });
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Block> {
        self.segments.iter().flat_map(Segment::live)
    }

    /// Live blocks, and those that wait for a stream.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Block> {
        let blocks = self.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.is_live || block.is_pending)
    }

    fn pending(&self) -> u64 {
        self.in_use()
            .filter(|block| block.is_pending)
            .map(|block| block.bytes)
            .sum()
    }

    /// The report's figures for a program that was traced from the start with requested bytes
    /// known.
    pub(crate) fn expected(&self) -> Value {
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
                let pending = segment.blocks.iter().filter(|b| b.is_pending && within(b));
                let part = |block: &&Block| {
                    (block.address + block.bytes).min(end) - block.address.max(start)
                };
                let used = blocks.iter().copied().chain(pending);
                let used: u64 = used.map(|block| part(&block)).sum();
                if used == 0 {
                    unused += end - start;
                } else if used * 20 < end - start && !blocks.is_empty() {
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
            "pending_free_bytes": self.pending(),
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
