//! GPUs of the host, from the driver's files.

use std::collections::BTreeSet;
use std::fs;

use super::tables::Tables;
use crate::ids;

/// A GPU of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GpuRow {
    name: Option<String>,
    bus: Option<String>,
    uuid: Option<String>,
}

impl GpuRow {
    /// Parses `/proc/driver/nvidia/gpus/*/information`.
    fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.trim().strip_prefix(':'))?;
            Some(value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        Self {
            name: value("Model"),
            bus: value("Bus Location"),
            uuid: value("GPU UUID").map(|uuid| uuid.trim_start_matches("GPU-").to_owned()),
        }
    }
}

/// Writes the table of GPUs, if there are any, in PCI bus order; with several GPUs, CUDA may number
/// them differently.
pub(super) fn write(tables: &Tables<'_>) -> rusqlite::Result<()> {
    let entries = fs::read_dir("/proc/driver/nvidia/gpus");
    let entries = entries.into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path().join("information"));
    let paths: BTreeSet<_> = paths.collect();
    let texts = paths.iter().flat_map(fs::read_to_string);
    let gpus: Vec<_> = texts.map(|text| GpuRow::parse(&text)).collect();
    if gpus.is_empty() {
        return Ok(());
    }
    tables.create("TARGET_INFO_GPU")?;
    let known = (gpus.len() == 1).then_some(0i64);
    let sql = "INSERT INTO TARGET_INFO_GPU (vmId, id, name, busLocation, uuid, cuDevice) \
               VALUES (?, ?, ?, ?, ?, ?)";
    for (id, gpu) in (0i64..).zip(gpus) {
        tables.execute(sql, (ids::BASE, id, gpu.name, gpu.bus, gpu.uuid, known))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_parsed_from_the_files_of_the_driver() {
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 105\nGPU UUID: \t GPU-12ab-34\n\
                    Video BIOS: \t ??.??\nBus Location: \t 0000:19:00.0\n";
        let gpu = GpuRow::parse(text);
        assert_eq!(gpu.name.as_deref(), Some("NVIDIA H200"));
        assert_eq!(gpu.uuid.as_deref(), Some("12ab-34"));
        assert_eq!(gpu.bus.as_deref(), Some("0000:19:00.0"));
        assert_eq!(GpuRow::parse(""), GpuRow::default());
    }
}
