//! `--activity`: GPU activity, through the collector and the stand-in CUPTI.

pub(crate) mod counts;
mod failures;
mod formats;
mod losses;
mod together;

use serde_json::Value;

use crate::harness::report::{list, number};
use crate::harness::session::Ended;
use crate::harness::{Backend, Report, Session, Setup, Truth, standin};

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

/// Workloads that share a gpuprobe: environment variables, backend and commands of each.
type Rows<'a> = [(&'a str, Backend, &'a [&'a str])];

/// Runs each row's commands in a process of its own; returns the last report and the rows in order.
fn traced_together(arguments: &[&str], rows: &Rows<'_>) -> (Report, Vec<Ended>) {
    let mut session = Session::start(|setup| {
        setup
            .modes(["--activity"])
            .args(["--activity-summary"])
            .args(arguments.iter().copied())
            .env("GPUPROBE_CUPTI", &cupti("cupti"))
    });
    let mut ended = Vec::new();
    for (settings, backend, commands) in rows {
        let program = standin().program_text(*backend);
        let mut member = session.program(&format!("{settings} {program}"));
        for command in *commands {
            member.say(command);
        }
        ended.push(session.done(member));
    }
    (session.end().0, ended)
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
