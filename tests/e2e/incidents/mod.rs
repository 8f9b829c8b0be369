//! Out of memory: the request, the holders, and the outcome.

mod holders;
mod hook;
mod outcomes;
mod pytorch;
mod recording;

use serde_json::Value;

use crate::harness::report::list;
use crate::harness::{Gpuprobe, Report};

const MIB: u64 = 1 << 20;

/// The incidents in a report.
pub(crate) fn incidents(report: &Report) -> &[Value] {
    match report.get("incidents") {
        Some(_) => list(report, "incidents"),
        None => &[],
    }
}

/// Function, requested bytes, failed calls, and outcome of each incident.
pub(crate) fn short(incidents: &[Value]) -> Vec<(&str, u64, u64, &str)> {
    incidents
        .iter()
        .map(|one| {
            (
                one["api"].as_str().unwrap(),
                one["asked_bytes"].as_u64().unwrap(),
                one["attempts"].as_u64().unwrap(),
                one["outcome"].as_str().unwrap(),
            )
        })
        .collect()
}

/// Failed calls, and incidents.
pub(crate) fn counts(report: &Report) -> [u64; 2] {
    ["calls", "incidents"].map(|key| report["out_of_memory"][key].as_u64().unwrap_or(0))
}

/// The lines on standard error about incidents, without the program's name.
pub(crate) fn said(gpuprobe: &mut Gpuprobe) -> Vec<String> {
    let lines = gpuprobe.said().into_iter();
    let lines = lines.filter_map(|line| line.strip_prefix("gpuprobe: ").map(str::to_owned));
    lines
        .filter(|line| line.starts_with("out of memory") || line.starts_with("  "))
        .collect()
}
