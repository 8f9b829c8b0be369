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
    /// Name of its user on this host.
    #[serde(default)]
    pub user: Option<String>,
    /// Its command line, the words separated by blanks; the end may be missing.
    #[serde(default)]
    pub command: Option<String>,
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
    /// CUDA told the process that it sees so many devices. What it was started with says another
    /// number if it has chosen its devices itself: then all that is known is how many there are.
    pub fn sees(&mut self, devices: usize) {
        if devices == 0 {
            return;
        }
        self.single_gpu = devices == 1;
        if self.devices.len() != devices {
            self.devices.clear();
        }
    }

    /// The device that the process calls `index`.
    pub fn device(&self, index: u16) -> DeviceIdentity {
        let device = self.devices.get(usize::from(index));
        device.cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cuda_says_counts_more_than_what_a_process_was_started_with() {
        let gpu = |index| DeviceIdentity {
            physical_index: Some(index),
            uuid: None,
        };
        let mut identity = Identity {
            single_gpu: true,
            devices: vec![gpu(3)],
            ..Identity::default()
        };
        identity.sees(1);
        assert_eq!(identity.device(0), gpu(3));
        // os.environ["CUDA_VISIBLE_DEVICES"] = "1,2", before CUDA was loaded.
        identity.sees(2);
        assert!(!identity.single_gpu);
        assert_eq!(identity.device(0), DeviceIdentity::default());
        // Before CUDA was initialised, it has said nothing.
        identity.sees(0);
        assert!(!identity.single_gpu);
    }
}
