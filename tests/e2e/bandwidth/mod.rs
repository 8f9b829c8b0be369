//! `--bandwidth-util`: bytes and throughput of copies.

mod devices;
mod kinds;
pub(crate) mod losses;
mod modes;
mod per_call;
mod runtime;
pub(crate) mod speed;

use std::fs;

use procfs::process::{MMapPath, Process};
use serde_json::Value;

use crate::harness::child::raw;
use crate::harness::{Backend, Gpuprobe, Report, Setup, Truth, Workload};

/// The selected report.
pub(crate) const COPIES: [&str; 1] = ["--bandwidth-util"];

/// Commands of a workload; returns the expected copies.
type Run = fn(&mut Workload) -> Vec<CopyRow<'static>>;

/// Runs each row in a workload of its own under one tracer with `--per-call`. Checks the copies of each;
/// returns the report and the PIDs. The workloads run on: whether an address is the host's is looked up later.
fn check_rows(backend: Backend, arguments: &[&str], rows: &[Run]) -> (Report, Vec<u32>) {
    let settings = [("STANDIN_DEVICES", "2"), ("STANDIN_COPY_GBPS", "0")];
    let start = |_: &Run| {
        let mut workload = Workload::spawn(&mut Workload::command(backend, &settings));
        workload.say("freenull");
        workload
    };
    let mut workloads: Vec<_> = rows.iter().map(start).collect();
    let setup =
        Setup::pids_without_stacks(workloads.iter().map(|workload| workload.pid)).modes(COPIES);
    let setup = setup.args(["--per-call"]);
    let mut gpuprobe = setup.args(arguments.iter().copied()).start();
    let runs = workloads.iter_mut().zip(rows);
    let expected: Vec<_> = runs.map(|(workload, run)| run(workload)).collect();
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let truths = workloads.iter_mut().map(|workload| workload.status());
    let truth = truths.fold(Truth::default(), |sum, truth| sum + truth);
    let bandwidth = &report["bandwidth_util"];
    assert_eq!(bandwidth["copies"], truth.copies);
    assert_eq!(bandwidth["sets"], truth.sets);
    let copies = copies_of(&gpuprobe);
    for (workload, expected) in workloads.iter().zip(&expected) {
        let of_it = copies.iter().filter(|copy| copy["pid"] == workload.pid);
        let of_it: Vec<_> = of_it.cloned().collect();
        check(&report, workload.pid, &of_it, expected);
    }
    let pids = workloads.iter().map(|workload| workload.pid).collect();
    (report, pids)
}

/// A function and its variants for streams of each thread.
fn variants(function: &str) -> Vec<String> {
    let suffixes: &[&str] = match function {
        // The runtime has none.
        _ if function.starts_with("cudaMemcpyPeer") => &[""],
        _ if function.contains("Async") => &["", "_ptsz"],
        _ => &["", "_ptds"],
    };
    let variant = |suffix| format!("{function}{suffix}");
    suffixes.iter().map(variant).collect()
}

/// A command of the workload, the function that it calls, the direction, and the mode.
type Function = (&'static str, &'static str, &'static str, &'static str);

/// Calls every variant of these functions twice.
fn call_each(workload: &mut Workload, functions: &[Function]) -> Vec<CopyRow<'static>> {
    let mut expected = Vec::new();
    // Every size is distinct, above the staging limit, and a multiple of rows and layers.
    for (bytes, (kind, function, direction, mode)) in (65_544..).step_by(8).zip(functions) {
        for variant in variants(function) {
            workload.say(&format!("copy {kind} {bytes} 2 via={variant}"));
            expected.extend([(*function, *direction, *mode, bytes); 2]);
        }
    }
    expected
}

/// The lines of single copies.
pub(crate) fn copies_of(gpuprobe: &Gpuprobe) -> Vec<Value> {
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
