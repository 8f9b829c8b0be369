//! `--bandwidth-util`: bytes and throughput of copies.

mod devices;
mod formats;
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

/// Commands of a workload, which takes the reply to a command from before gpuprobe attached, and
/// the expected copies.
type Run = fn(&mut Workload, &str) -> Vec<CopyRow<'static>>;

/// Runs each row in a workload of its own under one tracer with `--per-call`, with a command before
/// it attaches. Checks the copies of each; returns the report and the PIDs.
fn check_rows(backend: Backend, arguments: &[&str], rows: &[(&str, Run)]) -> (Report, Vec<u32>) {
    let settings = [("STANDIN_DEVICES", "2"), ("STANDIN_COPY_GBPS", "0")];
    let started = rows.iter().map(|(before, run)| {
        let mut workload = Workload::spawn(&mut Workload::command(backend, &settings));
        let reply = workload.say(before);
        (workload, reply, run)
    });
    let mut started: Vec<_> = started.collect();
    let pids: Vec<_> = started.iter().map(|(workload, ..)| workload.pid).collect();
    let processes = pids
        .iter()
        .flat_map(|pid| ["--pid".to_owned(), pid.to_string()]);
    let mut gpuprobe = Setup::everything()
        .modes(COPIES)
        .args(processes)
        .args(arguments.iter().copied())
        .args(["--per-call"])
        .start();
    let expected: Vec<_> = started
        .iter_mut()
        .map(|(workload, reply, run)| run(workload, reply))
        .collect();
    let report = gpuprobe.stop();
    report.assert_nothing_lost();
    let truths = started.iter_mut().map(|(workload, ..)| workload.status());
    let truth = truths.fold(Truth::default(), |sum, truth| sum + truth);
    let bandwidth = &report["bandwidth_util"];
    assert_eq!(bandwidth["copies"], truth.copies);
    assert_eq!(bandwidth["sets"], truth.sets);
    let copies = copies_of(&gpuprobe);
    for (pid, expected) in pids.iter().zip(&expected) {
        let of_it = copies.iter().filter(|copy| copy["pid"] == *pid);
        check(&report, *pid, &of_it.cloned().collect::<Vec<_>>(), expected);
    }
    (report, pids)
}

/// Says `commands`, each with the function, direction, mode and bytes of each of its copies.
fn say_each(
    workload: &mut Workload,
    commands: &[(&str, usize, CopyRow<'static>)],
) -> Vec<CopyRow<'static>> {
    let mut expected = Vec::new();
    for (command, count, row) in commands {
        workload.say(command);
        expected.extend(vec![*row; *count]);
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
