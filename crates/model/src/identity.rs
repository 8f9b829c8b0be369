//! Identity of a process beyond its events: user, command line, container, devices.

use serde::{Deserialize, Serialize};

/// Identity on the host of a device that a process sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// Index on the host in PCI bus order, as `nvidia-smi` shows it.
    pub physical_index: Option<u32>,
    /// UUID of the GPU, or of the MIG instance that the process was given.
    pub uuid: Option<String>,
}

/// Identity of a process, read when it was first seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Name of its user on this host.
    #[serde(default)]
    pub user: Option<String>,
    /// Command line, arguments separated by spaces; it may be truncated.
    #[serde(default)]
    pub command: Option<String>,
    /// The process sees exactly one GPU.
    pub single_gpu: bool,
    /// Process id in the innermost PID namespace, if that is not gpuprobe's.
    pub container_pid: Option<u32>,
    /// Path of its cgroup below the root of the hierarchy.
    pub cgroup: Option<String>,
    /// Container id, if the path of the cgroup contains one.
    pub container: Option<String>,
    /// Devices in CUDA's order.
    pub devices: Vec<DeviceIdentity>,
}

impl Identity {
    /// Applies the device count that CUDA reported to the process. If it differs from the count
    /// derived from the environment, the process has chosen its devices itself: then only their
    /// number is known.
    pub fn set_device_count(&mut self, devices: usize) {
        if devices == 0 {
            return;
        }
        self.single_gpu = devices == 1;
        if self.devices.len() != devices {
            self.devices.clear();
        }
    }

    /// The device with index `index` in the process.
    pub fn device(&self, index: u16) -> DeviceIdentity {
        let device = self.devices.get(usize::from(index));
        device.cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_count_of_cuda_overrides_the_environment() {
        let gpu = |index| DeviceIdentity {
            physical_index: Some(index),
            uuid: None,
        };
        let mut identity = Identity {
            single_gpu: true,
            devices: vec![gpu(3)],
            ..Identity::default()
        };
        identity.set_device_count(1);
        assert_eq!(identity.device(0), gpu(3));
        // The program sets `os.environ["CUDA_VISIBLE_DEVICES"] = "1,2"` before it loads CUDA.
        identity.set_device_count(2);
        assert!(!identity.single_gpu);
        assert_eq!(identity.device(0), DeviceIdentity::default());
        // Before CUDA is initialised there is no count.
        identity.set_device_count(0);
        assert!(!identity.single_gpu);
    }
}
