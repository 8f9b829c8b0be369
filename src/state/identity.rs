//! Who a process is beyond what its events say, as it was when it was first seen.

use serde::{Deserialize, Serialize};

/// A device as the process numbers it, by the numbers of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// Index on the host, in the order of the PCI bus, as `nvidia-smi` shows it.
    pub physical_index: Option<u32>,
    /// UUID of the GPU, or of the part of it that the process was given.
    pub uuid: Option<String>,
}

/// Who a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The process can see one GPU only.
    pub single_gpu: bool,
    /// Its id in the innermost PID namespace that it is in, if that is another.
    pub container_pid: Option<u32>,
    /// Its cgroup, as a path below the root of the hierarchy.
    pub cgroup: Option<String>,
    /// The id of its container, if the cgroup names one.
    pub container: Option<String>,
    /// Its devices, in the order in which CUDA numbers them.
    pub devices: Vec<DeviceIdentity>,
}

impl Identity {
    /// The device that the process calls `index`.
    pub fn device(&self, index: u16) -> DeviceIdentity {
        let device = self.devices.get(usize::from(index));
        device.cloned().unwrap_or_default()
    }
}
