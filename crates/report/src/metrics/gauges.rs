//! Gauges of a process: what is so now, each label set once.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use super::labels::{Labels, OTHER, clean, with};
use super::{Metric, MetricValue, text};
use gpuprobe_cuda::{Belongs, MemoryKind};
use gpuprobe_engine::Process;
use gpuprobe_model::GpuMemory;
use gpuprobe_model::identity::DeviceIdentity;

/// All gauges of a process.
#[derive(Debug, Default)]
pub(super) struct GaugeRows {
    /// Labels of the process, which all series have.
    labels: Labels,
    /// Values by metric and further labels.
    values: BTreeMap<(Metric, Labels), u64>,
    /// Number of series that sum others.
    merged: u64,
    /// The series as text, once that was made.
    text: OnceCell<Vec<(Metric, String)>>,
}

impl GaugeRows {
    /// No gauges yet of the process with these labels.
    pub(super) fn of(labels: Labels) -> Self {
        Self {
            labels,
            ..Self::default()
        }
    }

    /// Adds `value` to the series with these further labels. A verdict is given or not, however often.
    pub(super) fn add(&mut self, metric: Metric, labels: Labels, value: u64) {
        self.merged += u64::from(labels.iter().any(|(_, value)| value == OTHER));
        let sum = self.values.entry((metric, labels)).or_default();
        *sum = match metric {
            Metric::Verdict => value.max(*sum),
            _ => sum.saturating_add(value),
        };
        self.text = OnceCell::new();
    }

    /// Labels of the process.
    pub(super) fn process(&self) -> &Labels {
        &self.labels
    }

    /// Number of series.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Number of series that sum others.
    pub(super) fn merged(&self) -> u64 {
        self.merged
    }

    /// Metric, further labels and value of each series.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Metric, &Labels, u64)> {
        let values = self.values.iter();
        values.map(|((metric, labels), value)| (*metric, labels, *value))
    }

    /// The series with all labels.
    pub(super) fn series(&self) -> impl Iterator<Item = (Metric, Labels, u64)> {
        self.rows()
            .map(|(metric, labels, value)| (metric, with(&self.labels, labels), value))
    }

    /// The samples of each metric as text, in the order of metrics.
    ///
    /// # Errors
    /// Returns the encoder's error; none is expected, as it writes to memory.
    pub(super) fn text(&self) -> Result<&[(Metric, String)], std::fmt::Error> {
        if let Some(text) = self.text.get() {
            return Ok(text);
        }
        let mut families: Vec<(Metric, BTreeMap<Labels, MetricValue>)> = Vec::new();
        for (metric, labels, value) in self.series() {
            if families.last().is_none_or(|(last, _)| *last != metric) {
                families.push((metric, BTreeMap::new()));
            }
            if let Some((_, series)) = families.last_mut() {
                series.insert(labels, MetricValue::Integer(value));
            }
        }
        let families = families.into_iter();
        let made: Result<Vec<_>, _> = families
            .map(|(metric, series)| Ok((metric, text::samples(metric, series)?)))
            .collect();
        let made = made?;
        Ok(self.text.get_or_init(|| made))
    }

    /// Adds the memory of `process`: by GPU and kind, on the host, imported.
    pub(super) fn add_memory(&mut self, process: &Process) {
        let mut on_gpus: HashMap<MemoryKind, (u64, u64)> = HashMap::new();
        for (index, kind, total) in process.device_kinds() {
            let sum = on_gpus.entry(kind).or_default();
            *sum = (sum.0 + total.bytes, sum.1 + total.allocations);
            let device = index.map(|index| process.identity.device(index));
            let mut labels = gpu_labels(index, &device.unwrap_or_default());
            labels.push(("kind", kind.name().to_owned()));
            self.add(Metric::GpuMemory, labels.clone(), total.bytes);
            self.add(Metric::GpuAllocations, labels, total.allocations);
        }
        for (kind, total) in process.totals.kinds() {
            let (bytes, allocations) = on_gpus.get(&kind).copied().unwrap_or_default();
            let allocations = total.allocations.saturating_sub(allocations);
            if allocations == 0 {
                continue;
            }
            let bytes = total.bytes.saturating_sub(bytes);
            let labels = vec![("kind", kind.name().to_owned())];
            if kind.belongs() == Belongs::Elsewhere {
                self.add(Metric::ImportedMemory, labels, bytes);
            } else {
                self.add(Metric::HostMemory, labels.clone(), bytes);
                self.add(Metric::HostAllocations, labels, allocations);
            }
        }
    }

    /// Adds the memory that PyTorch's allocators of `process` have.
    pub(super) fn add_pytorch(&mut self, process: &Process) {
        for pool in process.tensors.iter().filter(|pool| pool.is_pytorch()) {
            let physical = process.identity.device(pool.device).physical_index;
            let gpu = physical.unwrap_or(pool.device.into());
            let labels = vec![("gpu", gpu.to_string())];
            let (allocated, reserved) = (pool.allocated_bytes, pool.reserved_bytes);
            self.add(Metric::PytorchAllocated, labels.clone(), allocated);
            self.add(Metric::PytorchReserved, labels, reserved);
        }
    }

    /// Adds what NVML says of the process: bytes by GPU.
    pub(super) fn add_used(&mut self, used: &[(u32, u64)], gpus: &[GpuMemory]) {
        for &(index, bytes) in used {
            let gpu = gpus.iter().find(|gpu| gpu.index == index);
            let uuid = gpu.map_or(String::new(), |gpu| clean(&gpu.uuid));
            let labels = vec![("gpu_uuid", uuid), ("gpu", index.to_string())];
            self.add(Metric::ProcessUsed, labels, bytes);
        }
    }
}

fn gpu_labels(index: Option<u16>, device: &DeviceIdentity) -> Labels {
    let index = device.physical_index.or(index.map(u32::from));
    let uuid = device.uuid.as_deref().map(clean);
    vec![
        ("gpu_uuid", uuid.unwrap_or_default()),
        (
            "gpu",
            index.map(|index| index.to_string()).unwrap_or_default(),
        ),
    ]
}
