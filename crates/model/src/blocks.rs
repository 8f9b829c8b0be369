//! Blocks of a framework's allocator, as they are in the memory of its process.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::stack::Frame;

/// Largest request that PyTorch serves from small segments of [`SMALL_SEGMENT`] bytes; a larger one takes a large segment.
/// `kSmallSize` and `kSmallBuffer` of `CUDACachingAllocator.cpp`.
pub const SMALL_REQUEST: u64 = 1 << 20;
/// See [`SMALL_REQUEST`].
pub const SMALL_SEGMENT: u64 = 2 << 20;
/// Pieces that expandable segments of large requests are mapped in: `kLargeBuffer`.
pub const LARGE_PIECE: u64 = 20 << 20;

/// The allocators of a framework in a process, by device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundBlocks {
    /// Process id in the initial PID namespace.
    pub pid: u32,
    /// Row of the framework's function in the table.
    pub row: u16,
    /// When they were read, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// If the hooks are probed now and then only, whether blocks could be read after the last time: what was seen then and
    /// was not found is gone.
    pub census: Option<bool>,
    /// The allocators.
    pub devices: Vec<DeviceBlocks>,
}

/// The memory of an allocator at a moment: its own counters, its segments, and the blocks that are in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceBlocks {
    /// Device index as CUDA numbers it in the process.
    pub device: u16,
    /// Bytes of allocated blocks.
    pub allocated_bytes: u64,
    /// Peak of these, since the process began or has reset it.
    pub peak_allocated_bytes: u64,
    /// Bytes that it has from CUDA.
    pub reserved_bytes: u64,
    /// Peak of these.
    pub peak_reserved_bytes: u64,
    /// Segments by address.
    pub segments: Vec<FoundSegment>,
    /// Blocks in use, by address; the rest of each segment is free.
    pub blocks: Vec<FoundBlock>,
    /// In a census, addresses of known blocks that are not there any more.
    pub gone: Vec<u64>,
    /// What free blocks are in the memory of the process.
    #[serde(skip)]
    pub free: BTreeSet<Vec<u64>>,
    /// Call stacks of blocks, by number: frames of Python, innermost first.
    #[serde(skip)]
    pub stacks: HashMap<u64, Vec<Frame>>,
}

impl DeviceBlocks {
    /// Adds those of another allocator. The peaks are at least these.
    pub fn join(&mut self, other: Self) {
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
        self.reserved_bytes = self.reserved_bytes.saturating_add(other.reserved_bytes);
        let peak = self.peak_allocated_bytes.max(other.peak_allocated_bytes);
        self.peak_allocated_bytes = peak.max(self.allocated_bytes);
        let peak = self.peak_reserved_bytes.max(other.peak_reserved_bytes);
        self.peak_reserved_bytes = peak.max(self.reserved_bytes);
        self.segments.extend(other.segments);
        self.segments
            .sort_unstable_by_key(|segment| segment.address);
        self.blocks.extend(other.blocks);
        self.blocks.sort_unstable_by_key(|block| block.address);
    }
}

/// Memory from CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundSegment {
    /// Device address.
    pub address: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Handle of the stream that it is for; 0 for the default stream.
    pub stream: u64,
    /// The private pool that it belongs to; zeroes for none.
    pub pool: (u64, u64),
    /// It consists of mappings.
    pub is_expandable: bool,
}

/// A block in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundBlock {
    /// Device address.
    pub address: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Bytes that the program asked for; 0 if that is not known.
    pub requested_bytes: u64,
    /// The program has freed it, and a stream may still use it.
    pub is_pending: bool,
    /// Number of the call stack that the framework has noted; 0 for none.
    pub stack: u64,
    /// Where it is in the memory of the process.
    #[serde(skip)]
    pub place: u64,
}

impl FoundBlock {
    /// Bytes that the program asked for, or the size if that is not known.
    pub fn asked_bytes(&self) -> u64 {
        match self.requested_bytes {
            0 => self.bytes,
            asked => asked,
        }
    }
}
