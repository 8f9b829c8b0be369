//! What events change: all that the rows of a recording are made of, besides the events themselves.

use std::sync::Arc;

use super::Allocation;
use super::incidents::IncidentRow;
use super::transfers::Mode;
use gpuprobe_cuda::Direction;
use gpuprobe_model::abi::RawLaunchKey;

/// What an event has changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// This is live now.
    Allocated(Block),
    /// This is no longer.
    Freed(Block),
    /// This is no longer, for its address was handed out again; its free has not returned yet.
    GaveWay(Block),
    /// A handle of this was released or handed out again, or a part of it mapped or unmapped; it is still
    /// allocated.
    Held(Block),
    /// What was freed here was not seen to be allocated.
    UnknownFree(u64),
    /// A pool of GPU memory was created, destroyed or trimmed, on this device, if that is known.
    Pool(Option<u16>),
    /// A request for memory was refused, or more is known of one that was.
    Incident(Box<IncidentRow>),
    /// The copy counts: its direction, and what its duration means.
    Copied(Direction, Mode),
    /// The kernel that this handle of a process stands for has this mangled name from now on, or
    /// none that is to be believed.
    Named(Handle, Option<Arc<str>>),
}

/// Memory that is allocated or freed, with what is known of it when the call is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The allocation.
    pub allocation: Allocation,
    /// What hardly any has.
    pub origin: Option<Box<Origin>>,
}

/// Where memory comes from, beyond the call that allocates it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Handle of its pool.
    pub pool: Option<u64>,
    /// What that pool holds, if it is known.
    pub reserved_bytes: Option<u64>,
    /// The name of the variable that it is.
    pub variable: Option<String>,
}

/// What a kernel's name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The process, as launch keys have it.
    pub process: u32,
    /// The handle, or the address of the host function.
    pub handle: u64,
    /// The epoch in which it has this meaning.
    pub epoch: u16,
}

impl From<&RawLaunchKey> for Handle {
    fn from(key: &RawLaunchKey) -> Self {
        Self {
            process: key.process,
            handle: key.handle,
            epoch: key.epoch,
        }
    }
}

/// Changes, in order, if anybody wants to know them.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) list: Vec<Change>,
    pub(super) are_wanted: bool,
}

impl Changes {
    pub(super) fn tell(&mut self, change: impl FnOnce() -> Change) {
        if self.are_wanted {
            self.list.push(change());
        }
    }
}

impl From<Allocation> for Block {
    fn from(allocation: Allocation) -> Self {
        let origin = None;
        Self { allocation, origin }
    }
}
