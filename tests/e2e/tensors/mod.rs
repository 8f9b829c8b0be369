//! Allocations of PyTorch's caching allocator: every figure is compared with the stand-in
//! allocator's own.

mod census;
mod chunks;
mod costs;
mod exact;
mod found;
mod late;
mod python;
mod recording;
mod snapshots;
pub(crate) mod truth;
pub(crate) mod versions;

use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::harness::report::list;
use crate::harness::{DEADLINE, Gpuprobe, Report, Setup, Workload, standin};

/// The setting for expandable segments.
pub(crate) const EXPANDABLE: (&str, &str) = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");

/// The program with the allocator.
pub(crate) fn program() -> String {
    standin().path("torchlike").to_str().unwrap().to_owned()
}

/// Runs the program as a command of gpuprobe.
pub(crate) fn started(settings: &[(&str, &str)]) -> Setup {
    let setup = Setup::command([program()]);
    settings
        .iter()
        .fold(setup, |setup, (name, value)| setup.env(name, value))
}

/// The program, untraced.
pub(crate) fn running(settings: &[(&str, &str)]) -> Workload {
    Workload::spawn(Command::new(program()).envs(settings.iter().copied()))
}

/// The PyTorch figures of a process in a report, by device.
pub(crate) fn pytorch(report: &Report, pid: u32) -> &[Value] {
    let process = report.process(pid);
    process
        .get("pytorch")
        .map_or(&[], |_| list(process, "pytorch"))
}

/// Differences between a report and the expected figures of each device.
fn differences(report: &Report, pid: u32, framework: &str, expected: &[Value]) -> Vec<String> {
    let found = report.entries(pid);
    let found = found
        .first()
        .and_then(|process| process[framework].as_array());
    let found = found.map_or(&[][..], Vec::as_slice);
    if found.len() != expected.len() {
        return vec![format!("{} devices, not {}", found.len(), expected.len())];
    }
    let mut wrong = Vec::new();
    for (found, expected) in found.iter().zip(expected) {
        for (key, value) in expected.as_object().unwrap() {
            if &found[key] != value {
                let device = &expected["device"];
                wrong.push(format!(
                    "device {device}: {key} is {}, not {value}",
                    found[key]
                ));
            }
        }
    }
    wrong
}

pub(crate) fn assert_pytorch(report: &Report, pid: u32, expected: &[Value]) {
    let wrong = differences(report, pid, "pytorch", expected);
    assert!(wrong.is_empty(), "{wrong:#?}");
    report.assert_nothing_lost_of([pid]);
}

/// Waits for a report with the expected figures; the program is idle.
pub(crate) fn settled(gpuprobe: &Gpuprobe, pid: u32, expected: &[Value]) -> Report {
    settled_of(gpuprobe, pid, "pytorch", expected)
}

/// The same of another framework.
fn settled_of(gpuprobe: &Gpuprobe, pid: u32, framework: &str, expected: &[Value]) -> Report {
    let end = Instant::now() + DEADLINE / 4;
    loop {
        let report = gpuprobe.next_report();
        let wrong = differences(&report, pid, framework, expected);
        if wrong.is_empty() {
            return report;
        }
        assert!(Instant::now() < end, "{wrong:#?}");
    }
}
