//! NVML: the GPUs of this host and the memory that processes use on them. Optional: nothing else depends
//! on it.

use std::collections::HashMap;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{MemoryInfo, ProcessInfo};

use gpuprobe_model::{GpuMemory, GpuUsage};

/// The name that the driver installs; the one without a version is in development packages.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// A GPU of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Index in PCI bus order, as in `nvidia-smi`.
    pub index: u32,
    /// UUID, with the prefix `GPU-`.
    pub uuid: String,
    /// Name of the model, for example `NVIDIA H200`.
    pub name: String,
    /// Minor number of its device node.
    pub minor: Option<u32>,
}

/// NVML, loaded and initialised.
pub struct Nvml {
    nvml: nvml_wrapper::Nvml,
    /// The GPUs at the time of the load.
    pub gpus: Vec<Gpu>,
}

impl Nvml {
    /// Loads NVML; `None` if it is not installed or finds no driver.
    pub fn open() -> Option<Self> {
        let library = LIBRARY.as_ref();
        let nvml = nvml_wrapper::Nvml::builder().lib_path(library).init();
        let nvml = nvml
            .inspect_err(|error| tracing::debug!("{LIBRARY}: {error}"))
            .ok()?;
        let gpus = gpus(&nvml)
            .inspect_err(|error| tracing::debug!("NVML cannot list the GPUs: {error}"))
            .ok()?;
        Some(Self { nvml, gpus })
    }

    /// The index of the GPU to which the MIG device with this UUID (`MIG-...`) belongs.
    pub fn parent_of(&self, uuid: &str) -> Option<u32> {
        let part = self.nvml.device_by_uuid(uuid).ok()?;
        part.mig_parent_device().ok()?.index().ok()
    }

    /// Current memory usage by process and GPU.
    pub fn usage(&self) -> GpuUsage {
        GpuUsage {
            processes: self.processes(),
            gpus: self.gpus.iter().map(|gpu| self.memory_of(gpu)).collect(),
            ..GpuUsage::default()
        }
    }

    /// Bytes on each GPU, by its index, of each process.
    pub fn processes(&self) -> HashMap<u32, Vec<(u32, u64)>> {
        let mut all: HashMap<u32, Vec<_>> = HashMap::new();
        for gpu in &self.gpus {
            let used = self.processes_of(gpu.index);
            let used =
                used.inspect_err(|error| tracing::debug!("NVML, GPU {}: {error}", gpu.index));
            for (pid, bytes) in used.into_iter().flatten() {
                all.entry(pid).or_default().push((gpu.index, bytes));
            }
        }
        all
    }

    /// The memory of the GPU with this index.
    ///
    /// # Errors
    /// Returns NVML's error.
    pub fn memory(&self, index: u32) -> Result<MemoryInfo, NvmlError> {
        self.nvml.device_by_index(index)?.memory_info()
    }

    /// The memory of a GPU; fields that NVML does not report are `None`.
    fn memory_of(&self, gpu: &Gpu) -> GpuMemory {
        let device = self.nvml.device_by_index(gpu.index);
        let busy = device.and_then(|device| device.utilization_rates());
        let memory = self.memory(gpu.index);
        let memory = memory
            .inspect_err(|error| tracing::debug!("NVML, memory of GPU {}: {error}", gpu.index))
            .ok();
        GpuMemory {
            index: gpu.index,
            uuid: gpu.uuid.clone(),
            name: gpu.name.clone(),
            total_bytes: memory.as_ref().map(|memory| memory.total),
            used_bytes: memory.as_ref().map(|memory| memory.used),
            busy_percent: busy.ok().map(|busy| busy.gpu),
        }
    }

    /// Used bytes by process. A process may be in both the compute and the graphics list.
    fn processes_of(&self, index: u32) -> Result<HashMap<u32, u64>, NvmlError> {
        let device = self.nvml.device_by_index(index)?;
        let mut processes = device.running_compute_processes()?;
        processes.extend(device.running_graphics_processes().unwrap_or_default());
        let used = |process: ProcessInfo| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some((process.pid, bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        Ok(processes.into_iter().filter_map(used).collect())
    }
}

fn gpus(nvml: &nvml_wrapper::Nvml) -> Result<Vec<Gpu>, NvmlError> {
    (0..nvml.device_count()?)
        .map(|index| {
            let device = nvml.device_by_index(index)?;
            Ok(Gpu {
                index,
                uuid: device.uuid()?,
                name: device.name()?,
                minor: device.minor_number().ok(),
            })
        })
        .collect()
}
