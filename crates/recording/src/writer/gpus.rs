//! GPUs of the host, from the driver's files.

use std::collections::BTreeSet;
use std::fs;

use rusqlite::Result;

use super::tables::Tables;
use crate::ids;

/// Name, bus location and UUID of a GPU, from the text of `/proc/driver/nvidia/gpus/*/information`.
fn parse(text: &str) -> [Option<String>; 3] {
    ["Model", "Bus Location", "GPU UUID"].map(|key| {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(key)?.trim().strip_prefix(':'))?;
        let value = value.trim().trim_start_matches("GPU-");
        Some(value.to_owned()).filter(|value| !value.is_empty())
    })
}

/// Writes the table of GPUs, if there are any, in PCI bus order; with several GPUs, CUDA may number
/// them differently.
pub(super) fn write(tables: &Tables<'_>) -> Result<()> {
    let entries = fs::read_dir("/proc/driver/nvidia/gpus");
    let entries = entries.into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path().join("information"));
    let paths: BTreeSet<_> = paths.collect();
    let texts = paths.iter().flat_map(fs::read_to_string);
    let gpus: Vec<_> = texts.map(|text| parse(&text)).collect();
    if gpus.is_empty() {
        return Ok(());
    }
    tables.create("TARGET_INFO_GPU")?;
    let known = (gpus.len() == 1).then_some(0i64);
    let sql = "INSERT INTO TARGET_INFO_GPU (vmId, id, name, busLocation, uuid, cuDevice) \
               VALUES (?, ?, ?, ?, ?, ?)";
    for (id, [name, bus, uuid]) in (0i64..).zip(gpus) {
        tables.execute(sql, (ids::BASE, id, name, bus, uuid, known))?;
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
        let expected = ["NVIDIA H200", "0000:19:00.0", "12ab-34"];
        assert_eq!(parse(text).map(Option::unwrap_or_default), expected);
        assert_eq!(parse(""), [None, None, None]);
    }
}
