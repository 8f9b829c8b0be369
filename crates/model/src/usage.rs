//! What the driver says that processes use.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// What NVML says that processes use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes on each GPU, by its index on the host, of each process.
    pub processes: HashMap<u32, Vec<(u32, u64)>>,
    /// About what a context takes on a GPU, where that was seen.
    pub contexts: HashMap<u32, u64>,
}
