//! `--activity`: GPU activity, through the collector and the stand-in CUPTI.

pub(crate) mod counts;
mod failures;
mod formats;
mod losses;
mod together;

use serde_json::Value;

use crate::harness::report::{list, number};
use crate::harness::{Backend, Report, Setup, Truth, standin};

/// A script with every kind of activity.
const WORK: &str = "module add mul; launch all 5; stream; launch add 7 stream=0; copy h2d 4096 3; \
    copy d2h 100 2; copy d2d 64; copy h2d 512 2 stream=0 pinned; set 256 4; alloc 1000 3; free 0 2; \
    managed 300; pinned 8192; async 2048 2; syncstream 0; synchronize";

/// Records GPU activity through the stand-in CUPTI.
fn recorded(setup: Setup) -> Setup {
    setup
        .modes(["--activity"])
        .env("GPUPROBE_CUPTI", &cupti("cupti"))
}

fn setup(backend: Backend) -> Setup {
    recorded(Setup::workload(backend))
}

/// The library path of the stand-in CUPTI, or of a variant with fewer functions.
fn cupti(folder: &str) -> String {
    let file = standin().path(folder).join("libcupti.so.13");
    file.to_str().unwrap().to_owned()
}

/// Runs a script in the workload to its exit; returns its PID, its counts and the last report.
fn traced(setup: Setup, script: &str) -> (u32, Truth, Report) {
    let mut run = setup.run(script);
    assert_eq!(run.gpuprobe.exit_code(), 0);
    (run.pid, run.truth, run.report())
}

/// The only entry of a process with CUPTI records.
fn process(report: &Report, pid: u32) -> &Value {
    let mut processes = list(&report["activity"], "processes").iter();
    let mut of_it = processes.by_ref().filter(|process| process["pid"] == pid);
    let found = of_it.next();
    assert!(of_it.next().is_none(), "{}", report["activity"]);
    found.unwrap_or_else(|| panic!("no {pid} in {}", report["activity"]))
}

/// Sum of `key` over the entries of `list` that `wanted` selects.
fn sum(process: &Value, entries: &str, key: &str, wanted: impl Fn(&Value) -> bool) -> u64 {
    let entries = list(process, entries).iter();
    entries.filter(|e| wanted(e)).map(|e| number(e, key)).sum()
}

/// Asserts that counts and bytes equal the program's.
fn agrees(process: &Value, truth: &Truth) {
    let is_set = |copy: &Value| copy["direction"] == "set";
    let operation = |wanted: &str| sum(process, "memory", "count", |m| m["operation"] == wanted);
    let found = [
        sum(process, "kernels", "count", |_| true),
        sum(process, "copies", "count", |copy| !is_set(copy)),
        sum(process, "copies", "bytes", |copy| !is_set(copy)),
        sum(process, "copies", "count", is_set),
        operation("allocation"),
        operation("release"),
    ];
    let expected = [
        truth.launches,
        truth.copies,
        truth.copy_bytes,
        truth.sets,
        truth.allocs,
        truth.frees,
    ];
    assert_eq!(found, expected, "{process:#}");
}
