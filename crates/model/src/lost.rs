//! What is missing in the figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Events that did not reach the ledger, by consequence. Any non-zero value means that figures
/// are incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Memory calls: the ring or a map was full, or a result could not be read.
    pub memory: u64,
    /// Names and ends of processes and threads.
    pub tasks: u64,
    /// Hints that a process has mapped a new library.
    pub notices: u64,
    /// Facts about which context is on which device.
    pub contexts: u64,
    /// Children of the traced command that are not followed.
    pub children: u64,
    /// Launches that were not counted.
    pub launches: u64,
    /// Names of kernels.
    pub names: u64,
    /// Copies.
    pub copies: u64,
    /// Launches that were counted, but are not recorded one by one.
    pub single_launches: u64,
    /// Call stacks that were not taken.
    pub stacks: u64,
    /// Call stacks of which only the part is known that frame pointers lead to.
    pub partial_stacks: u64,
    /// Python frames of call stacks that were not taken.
    pub python: u64,
    /// Call stacks with more Python frames than are kept.
    pub python_cut: u64,
    /// Call stacks with a Python frame, and code objects, that could not be read.
    pub python_unreadable: u64,
    /// Tensors, and what was asked for of these: there was little room in the ring, or there is no such
    /// device.
    pub tensors: u64,
    /// Records of what the GPU did, between the process and here.
    pub activity: u64,
    /// Records of what the GPU did that CUPTI itself dropped.
    pub cupti_dropped: u64,
    /// Records of CUPTI that are of no known kind.
    pub cupti_unknown: u64,
    /// Records or ends of buffers of CUPTI that could not be read.
    pub cupti_malformed: u64,
    /// Records that a recording does not have, as it could not be written fast enough.
    pub recording: u64,
    /// Records that could not be decoded.
    pub undecodable: u64,
}

impl Lost {
    /// Whether anything was lost.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// The losses by the names that they have in JSON.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let named = serde_json::to_value(self).and_then(serde_json::from_value);
        named.unwrap_or_default()
    }
}
