//! `--bandwidth-util`: bytes and throughput of copies.

mod devices;
mod failures;
mod formats;
mod kinds;
mod losses;
mod modes;
mod per_call;
mod runtime;
mod sets;
mod speed;

use std::fs;

use procfs::process::{MMapPath, Process};
use serde_json::Value;

use crate::harness::child::raw;
use crate::harness::{Gpuprobe, Report, Setup, Workload};

/// The selected report.
const COPIES: [&str; 1] = ["--bandwidth-util"];

/// Runs commands on `workload` under a tracer with `--per-call`; returns the report and the line of
/// each copy. The workload lives until all lines have been read.
fn each_copy(
    workload: &mut Workload,
    arguments: &[&str],
    commands: impl FnOnce(&mut Workload),
) -> (Report, Vec<Value>) {
    workload.say("freenull");
    let mut gpuprobe = Setup::pid(workload.pid)
        .modes(COPIES)
        .args(arguments.iter().copied())
        .args(["--per-call"])
        .start();
    let before = workload.status();
    commands(workload);
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let truth = workload.status();
    assert_eq!(
        report["bandwidth_util"]["copies"],
        truth.copies - before.copies
    );
    assert_eq!(report["bandwidth_util"]["sets"], truth.sets - before.sets);
    (report, copies_of(&gpuprobe))
}

/// The lines of single copies.
fn copies_of(gpuprobe: &Gpuprobe) -> Vec<Value> {
    let text = fs::read_to_string(&gpuprobe.reports).unwrap();
    let lines = text.lines().map(|l| serde_json::from_str(l).unwrap());
    lines
        .filter_map(|mut line: Value| line.get_mut("copy").map(Value::take))
        .collect()
}

/// An address of the process in host memory that stays mapped.
fn host_address(pid: u32) -> u64 {
    let maps = Process::new(raw(pid).as_raw()).unwrap().maps().unwrap();
    let stack = maps.iter().find(|map| map.pathname == MMapPath::Stack);
    stack.expect("a stack").address.0
}

/// Function, direction, mode and bytes of a copy.
type CopyRow<'a> = (&'a str, &'a str, &'a str, u64);

fn row(copy: &Value) -> CopyRow<'_> {
    let text = |key: &str| copy[key].as_str().unwrap();
    let bytes = copy["bytes"].as_u64().unwrap();
    (text("api"), text("direction"), text("mode"), bytes)
}

/// Asserts that the copies are these, in this order, and that the report sums them.
fn check(report: &Report, pid: u32, copies: &[Value], expected: &[CopyRow<'_>]) {
    let found: Vec<_> = copies.iter().map(row).collect();
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
    let mut sums = std::collections::BTreeMap::new();
    for (_, direction, mode, bytes) in expected {
        let sum = sums.entry((*direction, *mode)).or_insert((0, 0));
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    let sums: Vec<_> = sums
        .into_iter()
        .map(|((direction, mode), (calls, bytes))| (direction, mode, calls, bytes))
        .collect();
    assert_eq!(report.moved(pid), sums);
}
