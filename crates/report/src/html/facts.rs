//! Facts of a run besides its memory.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;

use super::bins::Bins;
use super::document::{KernelData, LostData, RefusedData};
use super::work::GpuWork;
use crate::Report;
use crate::analysis::Filter;
use crate::names::simplify;
use crate::words::plural;
use gpuprobe_model::text::size;
use gpuprobe_recording::row::{integer, text};
use gpuprobe_recording::{Database, ids};

/// Limit on the incidents that are shown.
const INCIDENTS: usize = 1000;

pub(super) fn processes(report: &Report) -> Value {
    let processes = report
        .about
        .as_ref()
        .and_then(|about| about.processes.as_ref());
    serde_json::to_value(processes).unwrap_or_default()
}

/// The GPUs of the report, with their busy time by bin.
pub(super) fn gpus(report: &Report, work: &GpuWork) -> Vec<Value> {
    let gpus = report.about.iter().flat_map(|about| &about.gpus);
    let with_bins = gpus.map(|gpu| {
        let mut value = serde_json::to_value(gpu).unwrap_or_default();
        let bins = work.busy.get(&gpu.device).map_or(&[][..], Vec::as_slice);
        let of_kind = |kind: usize| bins.iter().map(|bin| bin[kind]).collect::<Vec<u64>>();
        let names = ["kernels", "copies", "sets", "graphs", "busy"];
        let by_kind: BTreeMap<_, _> = (0..)
            .zip(names)
            .map(|(kind, name)| (name, of_kind(kind)))
            .collect();
        value["bins"] = serde_json::to_value(by_kind).unwrap_or_default();
        value
    });
    with_bins.collect()
}

/// Kernels of which only the number of launches is known.
pub(super) fn counted_kernels(report: &Report) -> Vec<KernelData> {
    let kernels = report.cudatrace.iter().flat_map(|trace| &trace.kernels);
    let counted = kernels.map(|kernel| KernelData {
        pid: kernel.pid,
        short: simplify(&kernel.name),
        name: kernel.name.clone(),
        launches: kernel.launches,
        total_ns: None,
        changes: None,
        histogram: None,
    });
    counted.collect()
}

pub(super) fn traced(report: &Report, events: u64, kernels: &[KernelData], bins: &Bins) -> String {
    let about = report.about.as_ref();
    let processes = about
        .and_then(|about| about.processes.as_ref())
        .map_or(0, Vec::len);
    let (begin, end) = (bins.span(0).0, bins.span(bins.count() - 1).1);
    let seconds = end.saturating_sub(begin) as f64 / 1e9;
    let mut parts = Vec::new();
    if events > 0 {
        parts.push(plural(events, "memory event"));
    }
    let launches = kernels
        .iter()
        .map(|kernel| kernel.launches)
        .fold(0, u64::saturating_add);
    if launches > 0 {
        parts.push(plural(launches, "kernel launch"));
    }
    let what = match parts.is_empty() {
        true => String::new(),
        false => format!(": {}", parts.join(", ")),
    };
    format!(
        "{} for {seconds:.1} s{what}.",
        plural(processes as u64, "process")
    )
}

pub(super) fn lost(database: &Database, report: &Report) -> LostData {
    let (complete, sentence) = match report.lost.any() {
        true => {
            let lost = crate::describe_lost(&report.lost);
            let sentence = format!("LOST EVENTS, the figures are incomplete: {lost}.");
            (Some(false), sentence)
        }
        false if database.is_ours() => (Some(true), "Nothing was lost.".to_owned()),
        false => {
            let sentence = "Whether events were lost is unknown: exports of nsys do not tell.";
            (None, sentence.to_owned())
        }
    };
    LostData { complete, sentence }
}

pub(super) fn incidents(
    database: &Database,
    filter: &Filter,
    first_ns: i64,
) -> Result<Vec<RefusedData>> {
    let mut found = Vec::new();
    let columns = ["t0", "globalTid", "api", "requested", "outcome"];
    database.each("GPUPROBE_INCIDENTS", &columns, "", |row| {
        let (Some(time), Some(thread)) = (integer(row, 0), integer(row, 1)) else {
            return;
        };
        let pid = ids::pid(thread);
        if found.len() >= INCIDENTS || filter.pid.is_some_and(|wanted| wanted != pid) {
            return;
        }
        let asked = integer(row, 3).and_then(|bytes| u64::try_from(bytes).ok());
        let asked = asked.map_or(String::new(), |bytes| format!(" of {}", size(bytes)));
        let api = text(row, 2).unwrap_or_default();
        let outcome = text(row, 4).unwrap_or_default();
        found.push(RefusedData {
            time_ns: time.saturating_sub(first_ns),
            pid,
            text: format!("{api}{asked} was refused, {outcome}"),
        });
    })?;
    Ok(found)
}
