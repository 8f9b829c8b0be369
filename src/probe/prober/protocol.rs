//! Requests to the prober and its answers.

use serde::{Deserialize, Serialize};

use crate::probe::ProbePoint;

/// Number of probes that are released together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ProbeSet(pub(crate) u32);

/// Purpose of probes, which determines their programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Entry and return of calls.
    Calls,
    /// Functions of which only the entry matters: launches and stream operations.
    Entries,
    /// Functions of frameworks' allocators: entry only, with the call stack.
    Tensors,
    /// Static probes of an allocator for requested sizes. They have no points.
    Requests,
    /// The function of a collector that takes its batches.
    Batches,
    /// The destructor of an interpreter's code objects.
    CodeDealloc,
    /// The dynamic loader's rendezvous.
    Rendezvous,
    /// Starts, names and ends of processes, and perhaps their children: without a file or points.
    Tasks {
        /// Children of targets are targets.
        with_children: bool,
    },
}

/// Probes of one purpose.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::probe) struct Part {
    pub(in crate::probe) set: ProbeSet,
    pub(in crate::probe) purpose: Purpose,
    pub(in crate::probe) points: Vec<ProbePoint>,
    /// The processes in which they fire; -1 for all.
    pub(in crate::probe) pids: Vec<i32>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ProberRequest {
    /// Attach to the file that comes with it, all parts or none. Answered.
    Attach { id: u32, parts: Vec<Part> },
    /// Detach these probes.
    Release(ProbeSet),
    /// Detach all probes and end.
    Detach,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProberAnswer {
    pub(super) id: u32,
    pub(super) error: Option<String>,
}
