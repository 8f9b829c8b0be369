//! GPUs of the host and their use by processes, from NVML.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::identity::Identity;

/// GPU use of the host and of its processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuUsage {
    /// Memory in bytes on each GPU, by its host index, of each process.
    pub processes: HashMap<u32, Vec<(u32, u64)>>,
    /// Approximate size of a context on each GPU in bytes, if it was observed.
    pub contexts: HashMap<u32, u64>,
    /// Name of the host.
    #[serde(default)]
    pub host: Option<String>,
    /// The GPUs of the host.
    #[serde(default)]
    pub gpus: Vec<GpuMemory>,
    /// Processes that use a GPU or have CUDA loaded and of which no event was traced so far, by
    /// PID.
    #[serde(default)]
    pub untraced: HashMap<u32, Untraced>,
    /// Processes that had mapped CUDA before it was probed: after how many milliseconds they were traced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub late_ms: BTreeMap<u32, u64>,
}

/// A GPU of the host and its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMemory {
    /// Index on the host, as `nvidia-smi` shows it.
    pub index: u32,
    /// UUID of the GPU.
    pub uuid: String,
    /// Product name of the GPU.
    pub name: String,
    /// Total memory, bytes; `None` if NVML does not report it.
    pub total_bytes: Option<u64>,
    /// Used memory, bytes, over all processes.
    pub used_bytes: Option<u64>,
    /// Share of NVML's last sampling period in which a kernel ran, per cent; `None` if NVML does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_percent: Option<u32>,
}

/// Use of a GPU at the moment of a failed allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuUse {
    /// The GPU, if it could be identified.
    pub gpu: Option<GpuMemory>,
    /// Processes that use it, the failed one included, largest first.
    pub holders: Vec<GpuHolder>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuHolder {
    /// Process id in the initial PID namespace.
    pub pid: u32,
    /// Memory that NVML reports for the process on this GPU, bytes.
    pub bytes: u64,
    /// Identity of the process, if it could be read.
    pub who: Option<Untraced>,
}

/// A process without traced events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untraced {
    /// User id of the process.
    pub uid: u32,
    /// Name of the process.
    pub comm: String,
    /// Identity of the process.
    pub identity: Identity,
}
