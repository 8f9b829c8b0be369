//! What PyTorch's allocator has handed out: every number is compared with what the stand-in's allocator
//! says itself.

mod chunks;
mod exact;
pub(crate) mod hostile;
mod late;
mod losses;
mod python;
mod recording;
mod snapshots;
mod truth;
mod versions;

use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::harness::report::list;
use crate::harness::{DEADLINE, Gpuprobe, Report, Setup, Workload, standin};

/// The setting that has memory mapped piece by piece.
const EXPANDABLE: (&str, &str) = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");

/// The program that has the allocator.
fn program() -> String {
    standin().path("torchlike").to_str().unwrap().to_owned()
}

/// Has gpuprobe start the program.
fn started(settings: &[(&str, &str)]) -> Setup {
    let setup = Setup::command([program()]);
    settings
        .iter()
        .fold(setup, |setup, (name, value)| setup.env(name, value))
}

/// The program, which nobody traces yet.
fn running(settings: &[(&str, &str)]) -> Workload {
    Workload::spawn(Command::new(program()).envs(settings.iter().copied()))
}

/// What a report says of PyTorch in a process: of each device.
fn pytorch(report: &Report, pid: u32) -> &[Value] {
    let process = report.process(pid);
    process
        .get("pytorch")
        .map_or(&[], |_| list(process, "pytorch"))
}

/// Where a report says anything else than what is expected of each device.
fn differences(report: &Report, pid: u32, expected: &[Value]) -> Vec<String> {
    let found = report.entries(pid);
    let found = found
        .first()
        .and_then(|process| process["pytorch"].as_array());
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

fn assert_pytorch(report: &Report, pid: u32, expected: &[Value]) {
    let wrong = differences(report, pid, expected);
    assert!(wrong.is_empty(), "{wrong:#?}");
    report.assert_nothing_lost();
}

/// Waits for a report that says what is expected, of a program that does nothing now.
fn settled(gpuprobe: &Gpuprobe, pid: u32, expected: &[Value]) -> Report {
    let end = Instant::now() + DEADLINE / 4;
    loop {
        let report = gpuprobe.next_report();
        let wrong = differences(&report, pid, expected);
        if wrong.is_empty() {
            return report;
        }
        assert!(Instant::now() < end, "{wrong:#?}");
    }
}
