//! Changes that events cause. With the events, they are the source of all rows of a recording.

use std::sync::Arc;

use super::Allocation;
use super::incidents::IncidentRow;
use super::transfers::Mode;
use gpuprobe_cuda::Direction;

/// A change that an event caused.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The allocation became live.
    Allocated(MemoryBlock),
    /// The allocation was freed.
    Freed(MemoryBlock),
    /// The allocation was superseded: its address was handed out again before its free returned.
    Superseded(MemoryBlock),
    /// The address freed had no known allocation.
    UnknownFree(u64),
    /// The allocator of a framework handed out or took back a block, or gave memory back to CUDA.
    /// Only after [`super::State::watch_tensors`].
    Tensors(Box<TensorChange>),
    /// A pool of GPU memory was created, destroyed or trimmed, on this device, if known.
    Pool(Option<u16>),
    /// An out-of-memory incident was opened or updated.
    Incident(Box<IncidentRow>),
    /// The copy counts in reports: its direction, and the meaning of its duration.
    Copied(Direction, Mode),
    /// The kernel behind this handle of a process has a new mangled name, or `None` if its name is
    /// no longer trusted.
    Named(KernelHandle, Option<Arc<str>>),
}

/// An allocation or free, with its origin as known when the call returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBlock {
    /// The allocation itself, packed.
    pub allocation: Allocation,
    /// Details that few allocations have.
    pub origin: Option<Box<MemoryOrigin>>,
}

/// Origin of memory, beyond the call that allocated it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryOrigin {
    /// Handle of its pool.
    pub pool: Option<u64>,
    /// Bytes that the pool has reserved, if known.
    pub reserved_bytes: Option<u64>,
    /// Name of the device variable in this memory.
    pub variable: Option<String>,
}

/// A change of a framework's allocator, and what it holds after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorChange {
    /// Device index as CUDA numbers it in the process.
    pub device: u16,
    /// The block handed out.
    pub allocated: Option<Allocation>,
    /// The block taken back, or whose address was handed out again.
    pub freed: Option<Allocation>,
    /// Bytes of blocks that were not seen to be handed out.
    pub bytes_from_before: u64,
    /// Bytes reserved from CUDA.
    pub reserved_bytes: u64,
}

/// A kernel handle, or the address of a host function: its process number, the handle, and the epoch in which it has
/// this meaning, as in launch keys.
pub type KernelHandle = (u32, u64, u16);

/// Changes in order, if they are recorded.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) list: Vec<Change>,
    pub(super) is_enabled: bool,
    /// Whether those of tensors are, too.
    pub(super) with_tensors: bool,
}

impl Changes {
    pub(super) fn record(&mut self, change: impl FnOnce() -> Change) {
        if self.is_enabled {
            self.list.push(change());
        }
    }

    pub(super) fn record_tensors(&mut self, change: impl FnOnce() -> TensorChange) {
        if self.with_tensors {
            self.list.push(Change::Tensors(Box::new(change())));
        }
    }
}

impl From<Allocation> for MemoryBlock {
    fn from(allocation: Allocation) -> Self {
        let origin = None;
        Self { allocation, origin }
    }
}
