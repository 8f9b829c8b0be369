//! What the host says of GPUs and of the processes that use them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::identity::Identity;

/// What NVML and the host say of who uses GPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes on each GPU, by its index on the host, of each process.
    pub processes: HashMap<u32, Vec<(u32, u64)>>,
    /// About what a context takes on a GPU, where that was seen.
    pub contexts: HashMap<u32, u64>,
    /// Name of the host.
    #[serde(default)]
    pub host: Option<String>,
    /// The GPUs of the host.
    #[serde(default)]
    pub gpus: Vec<GpuMemory>,
    /// Processes that use a GPU or have CUDA loaded, and of which nothing was traced so far, by PID.
    #[serde(default)]
    pub untraced: HashMap<u32, Untraced>,
}

/// A GPU of the host and its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMemory {
    /// Index on the host, as `nvidia-smi` shows it.
    pub index: u32,
    /// UUID.
    pub uuid: String,
    /// Name of the model.
    pub name: String,
    /// Bytes that it has; none if NVML does not say.
    pub total_bytes: Option<u64>,
    /// Bytes of it that are used, whoever uses them.
    pub used_bytes: Option<u64>,
}

/// What the host says of a GPU at the moment at which its memory was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUse {
    /// The GPU, if it is known which it was.
    pub gpu: Option<GpuMemory>,
    /// Who uses it, the process that was refused included, most bytes first.
    pub holders: Vec<GpuHolder>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuHolder {
    /// Process id.
    pub pid: u32,
    /// Bytes that NVML says it uses there.
    pub bytes: u64,
    /// Who it is, if that could be told.
    pub who: Option<Untraced>,
}

/// A process of which nothing was traced so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untraced {
    /// User id.
    pub uid: u32,
    /// Name.
    pub comm: String,
    /// Who it is.
    pub identity: Identity,
}
