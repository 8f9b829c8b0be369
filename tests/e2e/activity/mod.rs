//! `--activity`: GPU activity, through the collector and the stand-in CUPTI.

mod counts;
mod failures;
mod formats;
mod losses;
mod together;

use serde_json::Value;

use crate::harness::report::{list, number};
use crate::harness::{Backend, Report, Setup, Truth, standin};

/// Commands for every kind of activity.
const WORK: [&str; 16] = [
    "module add mul",
    "launch all 5",
    "stream",
    "launch add 7 stream=0",
    "copy h2d 4096 3",
    "copy d2h 100 2",
    "copy d2d 64",
    "copy h2d 512 2 stream=0 pinned",
    "set 256 4",
    "alloc 1000 3",
    "free 0 2",
    "managed 300",
    "pinned 8192",
    "async 2048 2",
    "syncstream 0",
    "synchronize",
];

/// A workload with `--activity` that loads the stand-in CUPTI.
fn setup(backend: Backend) -> Setup {
    Setup::command([standin().program_text(backend)])
        .modes(["--activity"])
        .args(["--activity-summary"])
        .env("GPUPROBE_CUPTI", &cupti("cupti"))
}

/// The library path of the stand-in CUPTI, or of a variant with fewer functions.
fn cupti(folder: &str) -> String {
    let file = standin().path(folder).join("libcupti.so.13");
    file.to_str().unwrap().to_owned()
}

/// Runs all of `commands` in the workload to its exit; returns its counts and the last report.
fn traced(setup: Setup, commands: &[&str]) -> (u32, Truth, Report) {
    let mut gpuprobe = setup.start();
    let pid = gpuprobe.talk.ready();
    for command in commands {
        gpuprobe.talk.say(command);
    }
    let truth = gpuprobe.talk.done();
    assert_eq!(gpuprobe.exit_code(), 0);
    (pid, truth, gpuprobe.final_report())
}

/// The only process with CUPTI records.
fn process(report: &Report, pid: u32) -> &Value {
    let processes = list(&report["activity"], "processes");
    assert_eq!(processes.len(), 1, "{}", report["activity"]);
    assert_eq!(processes[0]["pid"], pid);
    &processes[0]
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
